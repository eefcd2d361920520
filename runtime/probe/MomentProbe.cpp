// The optimizer's second moment as it stands.

#include "runtime/Schedule.h"
#include "runtime/StateTransfer.h"
#include "runtime/StoredCodes.h"
#include "runtime/probe/Probe.h"

#include <algorithm>

namespace sluice {
namespace {

const fbs::ParamGroup *groupOf(const fbs::Plan &plan, std::string_view symbol) {
  for (uint32_t g = 0; g < sizeOf(plan.groups()); ++g) {
    const auto *members = plan.groups()->Get(g)->members();
    for (uint32_t i = 0; i < sizeOf(members); ++i)
      if (viewOf(members->Get(i)) == symbol)
        return plan.groups()->Get(g);
  }
  return nullptr;
}

/// What the gradient of an update is the mean of: samples, or the labels of positions.
double countPerUpdate(const Plan &plan) {
  double samples = static_cast<double>(plan.batch() * plan.accumulate() * plan.ranks());
  const char *program = plan.trainingProgram();
  for (const InputSpec &input : plan.inputs(program))
    if (input.name == viewOf(plan.raw().labels_input()) && input.batched)
      samples *= static_cast<double>(input.sampleBytes() / dtypeSize(input.dtype));
  return samples;
}

Status addParameter(const Session &session, const fbs::StateTensor &tensor,
                    ImportanceBlocks blocks, Importance &importance) {
  const Plan &plan = session.plan();
  std::string symbol(viewOf(tensor.name())), name = symbol.substr(sizeof("param/") - 1);
  const fbs::StateTensor *moment = plan.state("opt/" + name + "/v");
  const fbs::ParamGroup *group = groupOf(plan.raw(), symbol);
  if (!moment || !group)
    return Status::refused("the optimizer keeps no second moment of '" + name +
                           "' ('opt/" + name +
                           "/v'): take --kind fisher or --kind hutchinson");
  std::vector<int64_t> shape;
  // Of what codes stand for: those of 4 bits have half as many bytes as values.
  const auto *sizes =
      sizeOf(tensor.value_shape()) ? tensor.value_shape() : tensor.shape();
  for (uint32_t d = 0; d < sizeOf(sizes); ++d)
    shape.push_back(sizes->Get(d));
  std::vector<float> weights(static_cast<size_t>(matrixOf(shape).count()));
  if (Status status = session.readParameter(name, weights); !status.ok())
    return status;
  std::vector<float> squares(weights.size());
  auto stored = storedTensor(session, *moment);
  if (codedFormat(*moment))
    squares = decodeState(session, *moment);
  else if (stored.count == squares.size() && stored.form.converts())
    readExact(stored, 0, squares);
  else
    squares.clear();
  if (squares.size() != weights.size())
    return Status::refused("the second moment of '" + name + "' is not one per element");
  ParameterImportance &added =
      importance.parameters.emplace_back(name, shape, blocks, std::move(weights), false);
  std::copy(squares.begin(), squares.end(), added.window().begin());
  int64_t applied = session.updates() - session.skippedUpdates();
  double correction = biasCorrection(group->beta2(), applied - 1);
  added.closeWindow(countPerUpdate(plan) / correction, 1);
  return Status::success();
}

} // namespace

Result<ProbeResult> probeMoments(const Session &session, ImportanceBlocks blocks) {
  if (session.updates() - session.skippedUpdates() < 1)
    return Status::refused("no update has been done, so that the second moment says "
                           "nothing: name a checkpoint of training");
  ProbeResult result;
  const auto *state = session.plan().raw().state();
  for (uint32_t i = 0; i < sizeOf(state); ++i) {
    const fbs::StateTensor &tensor = *state->Get(i);
    if (tensor.role() != fbs::Role::parameter || !tensor.trainable())
      continue;
    Status status = addParameter(session, tensor, blocks, result.importance);
    if (!status.ok())
      return status;
  }
  if (result.importance.parameters.empty())
    return Status::refused("the plan trains no parameter");
  std::sort(result.importance.parameters.begin(), result.importance.parameters.end(),
            [](const auto &a, const auto &b) { return a.name() < b.name(); });
  result.updates = session.updates();
  return result;
}

} // namespace sluice
