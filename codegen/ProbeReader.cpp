#include "codegen/ProbeReader.h"

#include "runtime/Safetensors.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>

namespace sluice {
namespace {

/// Written in place of an increase where a weight has no finite value in the format.
constexpr double overflowMark = 3.4e38;

class ProbeReader {
public:
  explicit ProbeReader(const std::string &path) : path(path) {}

  Status read() {
    auto opened = SafetensorsFile::open(path);
    if (!opened)
      return Status{opened.status().code,
                    "'precision.policy.from': " + opened.status().message};
    if (Status status = opened->verifyChecksum(); !status.ok())
      return status;
    model.path = path;
    for (auto [key, into] : {std::pair{"kind", &model.kind},
                             {"model_hash", &model.modelHash},
                             {"samples", &model.samples}})
      if (auto found = opened->metadata().find(key); found != opened->metadata().end())
        *into = found->second;
    for (const TensorEntry &entry : opened->tensors())
      if (Status status = add(*opened, entry); !status.ok())
        return status;
    if (model.kind.empty() || model.modelHash.empty() || model.parameters.empty())
      return refuse("it has no 'kind', 'model_hash' and tensors 'importance/NAME', so it "
                    "is no file of 'sluice probe'");
    return Status::success();
  }

  ProbedModel model;

private:
  Status refuse(const std::string &what) const {
    return Status::refused("'precision.policy.from': '" + path + "': " + what);
  }

  /// "importance/NAME", "increase/NAME/FORMAT", either with "/stderr" behind it.
  Status add(const SafetensorsFile &file, const TensorEntry &entry) {
    std::string_view name = entry.name;
    bool isError = name.ends_with("/stderr");
    if (isError)
      name.remove_suffix(std::string_view("/stderr").size());
    constexpr std::string_view head = "increase/";
    size_t slash = name.rfind('/');
    bool isImportance = name.starts_with("importance/");
    if (!isImportance && (!name.starts_with(head) || slash < head.size()))
      return refuse("the tensor '" + entry.name + "' is none of a probe");
    std::vector<float> values;
    if (Status status = valuesOf(file, entry, values); !status.ok())
      return status;
    if (isImportance) {
      ProbedParameter &parameter = model.parameters[std::string(
          name.substr(std::string_view("importance/").size()))];
      addImportance(values, isError, parameter);
      return Status::success();
    }
    std::string parameter(name.substr(head.size(), slash - head.size()));
    addIncrease(
        values, isError,
        model.parameters[parameter].increases[std::string(name.substr(slash + 1))]);
    return Status::success();
  }

  Status valuesOf(const SafetensorsFile &file, const TensorEntry &entry,
                  std::vector<float> &values) const {
    if (entry.dtype != DType::f32 || entry.shape.size() != 1)
      return refuse("'" + entry.name + "' is no f32 [blocks]");
    values.resize(static_cast<size_t>(entry.shape[0]));
    if (!values.empty())
      std::memcpy(values.data(), file.data(entry).data(), entry.bytes);
    for (size_t i = 0; i < values.size(); ++i)
      if (std::isnan(values[i]))
        return refuse("'" + entry.name + "' has NaN at block " + std::to_string(i) +
                      "; probe again on data without NaN");
    return Status::success();
  }

  static void addImportance(const std::vector<float> &values, bool isError,
                            ProbedParameter &parameter) {
    double sum = 0;
    for (float value : values)
      sum += value;
    double mean = values.empty() ? 0 : sum / static_cast<double>(values.size());
    (isError ? parameter.importanceError : parameter.importance) = mean;
    parameter.blocks = static_cast<int64_t>(values.size());
  }

  /// Errors of blocks come from the same samples, so they are added as they are: an upper
  /// bound. Estimates below 0, which curvature may give, count as 0.
  static void addIncrease(const std::vector<float> &values, bool isError,
                          ProbedParameter::Increase &increase) {
    double sum = 0;
    for (float value : values)
      sum += value >= overflowMark ? std::numeric_limits<double>::infinity()
                                   : std::max(0.0, static_cast<double>(value));
    (isError ? increase.error : increase.sum) = sum;
  }

  const std::string &path;
};

} // namespace

Status readProbed(PolicySpec &policy) {
  if (!policy.isOn() || policy.from.empty() || policy.probed)
    return Status::success();
  ProbeReader reader(policy.from);
  if (Status status = reader.read(); !status.ok())
    return status;
  policy.probed = std::make_shared<const ProbedModel>(std::move(reader.model));
  return Status::success();
}

} // namespace sluice
