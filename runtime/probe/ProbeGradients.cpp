#include "runtime/probe/ProbeGradients.h"

#include <algorithm>
#include <cmath>

namespace sluice {

constexpr std::string_view gradientPrefix = "grad/";

static std::vector<int64_t> shapeOf(const fbs::Port &port) {
  std::vector<int64_t> shape;
  for (uint32_t i = 0; i < sizeOf(port.shape()); ++i)
    shape.push_back(port.shape()->Get(i));
  return shape;
}

Result<ProbeGradients> ProbeGradients::open(Session &session) {
  const fbs::Program *program = session.plan().program("probe");
  if (!program)
    return Status::refused("the plan has no program 'probe'; compile with 'entries: "
                           "[step, eval, infer, probe]'");
  ProbeGradients made;
  made.owner = &session;
  for (uint32_t i = 0; i < sizeOf(program->outputs()); ++i) {
    const fbs::Port &port = *program->outputs()->Get(i);
    std::string_view name = viewOf(port.name());
    if (!name.starts_with(gradientPrefix))
      continue;
    name.remove_prefix(gradientPrefix.size());
    if (port.dtype() != fbs::DType::f32 ||
        !session.plan().state("param/" + std::string(name)))
      return Status::refused("the gradient of '" + std::string(name) +
                             "' is no f32 gradient of a parameter");
    made.names.emplace_back(name);
  }
  if (made.names.empty())
    return Status::refused("the program 'probe' gives no gradient");
  std::sort(made.names.begin(), made.names.end());
  return made;
}

Result<Importance> ProbeGradients::importance(ImportanceBlocks blocks) const {
  constexpr int64_t mostKept = 256 << 20; // weights, of 18 bytes each
  std::vector<std::vector<int64_t>> shapes(names.size());
  const fbs::Program *program = owner->plan().program("probe");
  for (uint32_t i = 0; i < sizeOf(program->outputs()); ++i) {
    const fbs::Port &port = *program->outputs()->Get(i);
    std::string_view name = viewOf(port.name());
    if (!name.starts_with(gradientPrefix))
      continue;
    name.remove_prefix(gradientPrefix.size());
    auto place = std::lower_bound(names.begin(), names.end(), name);
    shapes[static_cast<size_t>(place - names.begin())] = shapeOf(port);
  }
  int64_t total = 0;
  for (const std::vector<int64_t> &shape : shapes)
    total += matrixOf(shape).count();
  Importance made;
  made.keepsErrors = total <= mostKept;
  for (size_t i = 0; i < names.size(); ++i) {
    std::vector<float> weights(static_cast<size_t>(matrixOf(shapes[i]).count()));
    if (Status status = owner->readParameter(names[i], weights); !status.ok())
      return status;
    if (!std::ranges::all_of(weights, [](float w) { return std::isfinite(w); }))
      return Status::refused("parameter '" + names[i] +
                             "' has a value that is not finite");
    made.parameters.emplace_back(names[i], shapes[i], blocks, std::move(weights),
                                 made.keepsErrors);
  }
  return made;
}

std::span<const float> ProbeGradients::gradient(size_t parameter) const {
  auto output = owner->output(std::string(gradientPrefix) + names[parameter]);
  if (!output)
    return {};
  return {reinterpret_cast<const float *>(output->data), output->bytes / sizeof(float)};
}

Status ProbeGradients::run(const Batch &batch, int64_t sample, StepResult &result) {
  if (Status status = owner->probe(batch, result); !status.ok())
    return status;
  return checkFinite(sample, result);
}

Status ProbeGradients::checkFinite(int64_t sample, const StepResult &result) const {
  std::string where = " at sample " + std::to_string(sample) + " of the data";
  if (!std::isfinite(result.lossSum))
    return Status::refused("the loss is not finite" + where +
                           ": check the data and the weights");
  for (size_t i = 0; i < names.size(); ++i) {
    double sum = 0; // NaN and infinities stay in it
    for (float x : gradient(i))
      sum += static_cast<double>(x) * x;
    if (!std::isfinite(sum))
      return Status::refused("the gradient of '" + names[i] + "' is not finite" + where +
                             ": check the data and the weights");
  }
  return Status::success();
}

} // namespace sluice
