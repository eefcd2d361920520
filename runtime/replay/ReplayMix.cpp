#include "runtime/replay/ReplayMix.h"

#include <exception>

namespace sluice {

Result<std::vector<ReplayShare>> drawShares(const ReplayBuffer &buffer,
                                            const ReplayMix &mix, int64_t fresh,
                                            uint64_t key, float &freshWeight) {
  freshWeight = 1;
  std::vector<ReplayShare> shares;
  auto add = [&](int64_t count, uint64_t drawKey, double weight, double match) -> Status {
    auto draws = mix.label ? buffer.drawClass(count, drawKey, *mix.label)
                           : buffer.draw(count, drawKey);
    if (!draws)
      return draws.status();
    for (const ReplayDraw &draw : *draws)
      shares.push_back({draw.index, static_cast<float>(weight) * draw.weight,
                        static_cast<float>(match) * draw.weight});
    return Status::success();
  };
  Status status = Status::success();
  if (!mix.logitsWeight) {
    status = add(mix.samples, 2 * key, 1, 0);
  } else {
    const int64_t matched = (mix.samples + 1) / 2, labelled = mix.samples - matched;
    auto all = static_cast<double>(fresh + mix.samples);
    freshWeight = static_cast<float>(all / static_cast<double>(fresh));
    status =
        add(matched, 2 * key, 0, *mix.logitsWeight * all / static_cast<double>(matched));
    if (status.ok() && labelled > 0)
      status = add(labelled, 2 * key + 1,
                   mix.labelsWeight * all / static_cast<double>(labelled), 0);
  }
  if (!status.ok())
    return status;
  return shares;
}

ReplayMix mixOf(const Plan &plan) {
  ReplayMix mix;
  const fbs::Replay *replay = plan.raw().replay();
  if (!replay)
    return mix;
  mix.samples = replay->samples();
  if (replay->logits_weight() >= 0)
    mix.logitsWeight = replay->logits_weight();
  mix.labelsWeight = replay->labels_weight();
  return mix;
}

std::vector<InputSpec> dataInputs(const Plan &plan, int64_t batch) {
  std::vector<InputSpec> inputs = plan.inputs(plan.trainingProgram());
  std::erase_if(inputs, [](const InputSpec &input) { return isReplayInput(input.name); });
  for (InputSpec &input : inputs)
    if (input.batched && batch > 0)
      input.shape[0] = batch;
  return inputs;
}

Result<ReplayBuffer> makeReplayBuffer(const Plan &plan, uint64_t seed) {
  const fbs::Replay *replay = plan.raw().replay();
  if (!replay)
    return Status::refused("the plan has no replay; compile with 'continual.replay'");
  auto policy = parseReplayPolicy(std::string(viewOf(replay->policy())));
  if (!policy)
    return policy.status();
  ReplayOptions options;
  options.policy = *policy;
  options.capacityBytes = replay->capacity_bytes();
  options.seed = seed;
  options.minPerClass = replay->min_per_class();
  options.alpha = replay->alpha();
  options.beta = replay->importance();
  std::vector<ReplayField> fields;
  for (const InputSpec &input : plan.inputs(plan.trainingProgram())) {
    if (input.name == replayWeightInput || input.name == replayMatchInput)
      continue;
    if (!input.batched)
      return Status::refused("replay: the input '" + input.name +
                             "' is not by sample, so that it cannot be kept");
    fields.push_back({input.name, input.sampleBytes()});
  }
  if (replay->samples() < 1 || replay->samples() >= plan.batch())
    return Status::damaged("the plan replays " + std::to_string(replay->samples()) +
                           " samples of a micro-batch of " +
                           std::to_string(plan.batch()));
  try {
    return ReplayBuffer::create(std::move(fields), options);
  } catch (const std::exception &) { // no such memory
    return Status::doesNotFit("the replay buffer needs " +
                              std::to_string(options.capacityBytes) +
                              " bytes of host memory, which cannot be had; give "
                              "'continual.replay.capacity' fewer");
  }
}

} // namespace sluice
