#include "runtime/replay/ReplayOffer.h"

namespace sluice {

/// The program 'eval' on a batch of the data inputs, for its logits.
static Result<OutputView> logitsOf(Session &session, const Batch &batch,
                                   const std::vector<InputSpec> &inputs) {
  Batch evaluated;
  evaluated.count = batch.count;
  evaluated.firstSample = batch.firstSample;
  for (const InputSpec &wanted : session.plan().inputs("eval"))
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].name == wanted.name)
        evaluated.data.push_back(batch.data[i]);
  StepResult result;
  if (Status status = session.eval(evaluated, result); !status.ok())
    return status;
  return session.output(viewOf(session.plan().raw().logits_output()));
}

static int64_t labelAt(const InputSpec &input, const void *data, int64_t sample) {
  if (input.dtype != DType::i64)
    return 0;
  auto each = static_cast<int64_t>(input.sampleBytes() / sizeof(int64_t));
  return each > 0 ? static_cast<const int64_t *>(data)[sample * each] : 0;
}

Status offerBatch(Session &session, const Batch &batch, const OfferSample &offer) {
  const Plan &plan = session.plan();
  std::vector<InputSpec> inputs = dataInputs(plan);
  if (batch.data.size() != inputs.size())
    return Status::usage("a sample has " + std::to_string(inputs.size()) + " inputs, " +
                         std::to_string(batch.data.size()) + " are given");
  // Of each field where the first sample lies, and how far the next one.
  std::vector<std::pair<const uint8_t *, size_t>> fields;
  size_t labels = inputs.size(), next = 0;
  for (const InputSpec &input : plan.inputs(plan.trainingProgram())) {
    if (input.name == replayWeightInput || input.name == replayMatchInput)
      continue;
    if (input.name == replayLogitsInput) {
      auto logits = logitsOf(session, batch, inputs);
      if (!logits)
        return logits.status();
      if (logits->bytes < static_cast<size_t>(batch.count) * input.sampleBytes())
        return Status::damaged("the plan's logits are smaller than its input '" +
                               input.name + "'");
      fields.emplace_back(logits->data, input.sampleBytes());
      continue;
    }
    if (input.name == viewOf(plan.raw().labels_input()))
      labels = next;
    fields.emplace_back(static_cast<const uint8_t *>(batch.data[next++]),
                        input.sampleBytes());
  }
  std::vector<const void *> sample(fields.size());
  for (int64_t i = 0; i < batch.count; ++i) {
    for (size_t f = 0; f < fields.size(); ++f)
      sample[f] = fields[f].first + static_cast<size_t>(i) * fields[f].second;
    int64_t label =
        labels < inputs.size() ? labelAt(inputs[labels], batch.data[labels], i) : 0;
    if (Status status = offer(sample, label); !status.ok())
      return status;
  }
  return Status::success();
}

Status offerTask(Session &session, BatchSource &data, int64_t task,
                 ReplayBuffer &buffer) {
  Status status = data.seek(0);
  Batch batch;
  for (int64_t done = 0; status.ok() && done < data.size(); done += batch.count) {
    status = data.next(batch);
    if (status.ok())
      status = offerBatch(session, batch,
                          [&](std::span<const void *const> sample, int64_t label) {
                            buffer.offer(sample, label, task);
                            return Status::success();
                          });
  }
  return status;
}

} // namespace sluice
