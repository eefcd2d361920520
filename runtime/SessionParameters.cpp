// Parameters of a session as exact f32 values, and weights from files.

#include "runtime/CheckpointShards.h"
#include "runtime/Session.h"
#include "runtime/StateTransfer.h"
#include "runtime/StoredCodes.h"

#include <algorithm>
#include <unordered_set>

namespace sluice {

constexpr std::string_view parameterPrefix = "param/";

static std::string_view bareName(std::string_view name) {
  return name.starts_with(parameterPrefix) ? name.substr(parameterPrefix.size()) : name;
}

/// A parameter or buffer by the model's name; null when there is none.
static const fbs::StateTensor *findParameter(const Plan &plan, std::string_view name) {
  auto isOne = [](const fbs::StateTensor *tensor) {
    return tensor && (tensor->role() == fbs::Role::parameter ||
                      tensor->role() == fbs::Role::buffer);
  };
  const fbs::StateTensor *tensor =
      plan.state(std::string(parameterPrefix) + std::string(name));
  if (!isOne(tensor))
    tensor = plan.state(name);
  return isOne(tensor) ? tensor : nullptr;
}

static Result<const fbs::StateTensor *> findValues(const Plan &plan,
                                                   std::string_view name, size_t count) {
  const fbs::StateTensor *tensor = findParameter(plan, name);
  std::string text = "'" + std::string(name) + "'";
  if (!tensor)
    return Status::usage("the plan has no parameter " + text);
  DType type = static_cast<DType>(tensor->dtype());
  bool isCoded = codedFormat(*tensor).has_value();
  if (!hasForms(type) && !isCoded)
    return Status::usage("parameter " + text + " is " + std::string(dtypeName(type)) +
                         ", not stored as f32 values: read and write it as state");
  uint64_t elements = tensor->size() / dtypeSize(type);
  if (isCoded)
    elements = static_cast<uint64_t>(matrixOf(valueShapeOf(*tensor)).count());
  if (count != elements)
    return Status::usage("parameter " + text + " has " + std::to_string(elements) +
                         " values, " + std::to_string(count) + " are given");
  return tensor;
}

Status Session::readParameter(std::string_view name, std::span<float> values) const {
  auto tensor = findValues(*planPtr, name, values.size());
  if (!tensor)
    return tensor.status();
  if (codedFormat(**tensor))
    std::ranges::copy(decodeState(*this, **tensor), values.begin());
  else
    readExact(storedTensor(*this, **tensor), 0, values);
  return Status::success();
}

Status Session::writeParameter(std::string_view name, std::span<const float> values) {
  auto tensor = findValues(*planPtr, name, values.size());
  if (!tensor)
    return tensor.status();
  storeExact(*this, **tensor, values);
  return Status::success();
}

/// Weights from elsewhere come without the adapters that the plan puts beside them.
static bool isAdapter(const fbs::Plan &plan, std::string_view name) {
  for (uint32_t i = 0; i < sizeOf(plan.adapters()); ++i)
    if (viewOf(plan.adapters()->Get(i)->a()) == name ||
        viewOf(plan.adapters()->Get(i)->b()) == name)
      return true;
  return false;
}

/// What checkpoints hold beside weights: nobody expects it to be used.
static bool isTrainingState(std::string_view name) {
  return name == "step" || name.starts_with("opt/") || name.starts_with("pending/") ||
         name.starts_with("window/") || name.starts_with("old/") ||
         name.starts_with("scale/");
}

/// By the full name or the bare one.
static StateSource findWeight(const Plan &plan, const fbs::StateTensor &tensor,
                              const SafetensorsFile &file) {
  std::string_view name = viewOf(tensor.name());
  StateSource source = findSource(plan, tensor, file, name);
  return source.entry ? source : findSource(plan, tensor, file, bareName(name));
}

Status Session::loadWeights(const std::string &path) {
  auto file = openWithShards(path);
  if (!file)
    return file.status();
  std::vector<StateSource> sources;
  std::unordered_set<const TensorEntry *> used;
  std::string missing;
  for (uint32_t i = 0; i < sizeOf(planPtr->raw().state()); ++i) {
    const fbs::StateTensor *tensor = planPtr->raw().state()->Get(i);
    if (tensor->role() != fbs::Role::parameter && tensor->role() != fbs::Role::buffer)
      continue;
    std::string name(viewOf(tensor->name()));
    StateSource source = findWeight(*planPtr, *tensor, *file);
    if (!source.entry && isAdapter(planPtr->raw(), name)) {
      log("'" + path + "' has no '" + name + "'; the adapter keeps its values");
      continue;
    }
    if (!source.entry) {
      missing += (missing.empty() ? "'" : ", '") + name + "'";
      continue;
    }
    if (std::string text = mismatch(source); !text.empty())
      return Status::refused("'" + path + "': tensor " + text);
    sources.push_back(source);
    used.insert({source.entry, source.completion});
  }
  if (!missing.empty())
    return Status::refused("'" + path + "' lacks " + missing);
  ConversionNotes notes;
  for (const StateSource &source : sources)
    notes.add(source, transfer(*this, source, *file));
  for (const std::string &line : notes.lines())
    log("'" + path + "': " + line);
  for (const TensorEntry &entry : file->tensors())
    if (!used.contains(&entry) && !isTrainingState(entry.name))
      log("'" + path + "': tensor '" + entry.name + "' is not used by this plan");
  return Status::success();
}

} // namespace sluice
