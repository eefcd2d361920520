// The C API of replay: what a service keeps of its samples, and steps with some of them.

#include "runtime/CApiHandles.h"
#include "runtime/replay/ReplayOffer.h"
#include "runtime/replay/ReplayStore.h"
#include "runtime/replay/TaskSource.h"

#include <optional>

using namespace sluice;

struct sluice_replay {
  std::optional<ReplayStore> store; // in a folder
  std::optional<ReplayBuffer> memory;
  const ReplayBuffer &buffer() const { return store ? store->buffer() : *memory; }
};

namespace {

/// The caller's batch as a source of one.
class OneBatch final : public BatchSource {
public:
  explicit OneBatch(Batch batch) : given(std::move(batch)) {}
  int64_t size() const override { return given.count; }
  Status seek(int64_t) override { return Status::success(); }
  Status next(Batch &batch) override {
    batch = given;
    return Status::success();
  }

private:
  Batch given;
};

Result<Batch> batchOf(const Session &session, const void *const *inputs, size_t count,
                      int64_t samples, int64_t most) {
  size_t expected = dataInputs(session.plan()).size();
  if (count != expected || (!inputs && count > 0))
    return Status::usage("samples have " + std::to_string(expected) + " inputs, " +
                         std::to_string(inputs ? count : 0) + " are given");
  if (samples < 1 || samples > most)
    return Status::usage("a batch has 1 to " + std::to_string(most) + " new samples, " +
                         std::to_string(samples) + " are given");
  Batch batch;
  batch.data.assign(inputs, inputs + count);
  batch.count = samples;
  batch.firstSample = session.samples();
  return batch;
}

/// Copies of samples until all of a batch are there.
struct OwnedSample {
  std::vector<std::vector<uint8_t>> fields;
  int64_t label = 0;
};

Status addBatch(Session &session, sluice_replay &replay, const Batch &batch,
                int64_t task) {
  std::vector<ReplaySample> samples;
  std::vector<OwnedSample> owned;
  const auto &fields = replay.buffer().fields();
  Status status =
      offerBatch(session, batch, [&](std::span<const void *const> sample, int64_t label) {
        OwnedSample copy;
        copy.label = label;
        for (size_t f = 0; f < fields.size(); ++f) {
          auto *bytes = static_cast<const uint8_t *>(sample[f]);
          copy.fields.emplace_back(bytes, bytes + fields[f].bytes);
        }
        owned.push_back(std::move(copy));
        return Status::success();
      });
  if (!status.ok())
    return status;
  for (const OwnedSample &each : owned) {
    ReplaySample sample{{}, each.label, task};
    for (const auto &field : each.fields)
      sample.fields.push_back(field.data());
    samples.push_back(std::move(sample));
  }
  if (replay.store)
    return replay.store->add(samples);
  for (const ReplaySample &sample : samples)
    replay.memory->offer(sample.fields, sample.label, sample.task);
  return Status::success();
}

Status stepWith(Session &session, const sluice_replay &replay, const ReplayMix &mix,
                const Batch &fresh, StepResult &result) {
  TaskSourceOptions options;
  options.batch = session.plan().batch();
  options.firstPosition = session.samples();
  options.mix = mix;
  options.buffer = &replay.buffer();
  auto source =
      TaskSource::make(std::make_unique<OneBatch>(fresh),
                       session.plan().inputs(session.plan().trainingProgram()), options);
  if (!source)
    return source.status();
  Batch batch;
  Status status = (*source)->next(batch);
  return status.ok() ? session.step(batch, result) : status;
}

} // namespace

sluice_status sluice_replay_open(sluice_session *session, const char *folder,
                                 sluice_replay **out) {
  return with(session, [&](Session &self) {
    if (!out)
      return Status::usage("argument 'out' is null");
    auto buffer = makeReplayBuffer(self.plan(), self.seed());
    if (!buffer)
      return buffer.status();
    auto made = std::make_unique<sluice_replay>();
    if (folder) {
      auto store = ReplayStore::open(std::move(*buffer), folder);
      if (!store)
        return store.status();
      made->store.emplace(std::move(*store));
    } else {
      made->memory.emplace(std::move(*buffer));
    }
    *out = made.release();
    return Status::success();
  });
}

void sluice_replay_free(sluice_replay *replay) { delete replay; }

sluice_status sluice_replay_add(sluice_replay *replay, sluice_session *session,
                                const void *const *inputs, size_t count, int64_t samples,
                                int64_t task) {
  return with(session, [&](Session &self) {
    if (!replay)
      return Status::usage("the replay buffer is null");
    auto batch = batchOf(self, inputs, count, samples, self.plan().batch());
    return batch ? addBatch(self, *replay, *batch, task) : batch.status();
  });
}

int64_t sluice_replay_samples(const sluice_replay *replay) {
  return replay ? replay->buffer().size() : 0;
}

int64_t sluice_replay_seen(const sluice_replay *replay) {
  return replay ? replay->buffer().seen() : 0;
}

int64_t sluice_replay_class_samples(const sluice_replay *replay, int64_t label) {
  if (!replay)
    return 0;
  auto counts = replay->buffer().classCounts();
  auto found = counts.find(label);
  return found == counts.end() ? 0 : found->second;
}

sluice_status sluice_replay_forgetting(sluice_replay *replay, int64_t task,
                                       double best_accuracy, double accuracy,
                                       double epochs) {
  return report(guarded([&] {
    if (!replay)
      return Status::usage("the replay buffer is null");
    if (replay->store)
      return replay->store->setForgetting(task, best_accuracy, accuracy, epochs);
    replay->memory->setForgetting(task, best_accuracy, accuracy, epochs);
    return Status::success();
  }));
}

static sluice_status stepReplay(sluice_session *session, const sluice_replay *replay,
                                std::optional<int64_t> label, const void *const *inputs,
                                size_t count, int64_t samples,
                                sluice_step_result *result) {
  return with(session, [&](Session &self) {
    if (!replay)
      return Status::usage("the replay buffer is null");
    ReplayMix mix = mixOf(self.plan());
    mix.label = label;
    if (replay->buffer().size() == 0)
      return Status::refused("the replay buffer is empty: add samples before a step "
                             "that replays some");
    auto batch = batchOf(self, inputs, count, samples, self.plan().batch() - mix.samples);
    if (!batch)
      return batch.status();
    StepResult done;
    Status status = stepWith(self, *replay, mix, *batch, done);
    if (status.ok())
      fill(result, done);
    return status;
  });
}

sluice_status sluice_session_step_replay(sluice_session *session,
                                         const sluice_replay *replay,
                                         const void *const *inputs, size_t count,
                                         int64_t samples, sluice_step_result *result) {
  return stepReplay(session, replay, std::nullopt, inputs, count, samples, result);
}

sluice_status sluice_session_step_replay_class(sluice_session *session,
                                               const sluice_replay *replay, int64_t label,
                                               const void *const *inputs, size_t count,
                                               int64_t samples,
                                               sluice_step_result *result) {
  return stepReplay(session, replay, label, inputs, count, samples, result);
}
