#include "runtime/replay/TaskSource.h"

#include <algorithm>
#include <cstring>

namespace sluice {

TaskSource::TaskSource(std::unique_ptr<BatchSource> source, std::vector<InputSpec> given,
                       const TaskSourceOptions &options)
    : data(std::move(source)), inputs(std::move(given)), options(options) {
  int64_t next = 0;
  for (const InputSpec &input : inputs) {
    size_t bytes = input.sampleBytes();
    if (input.batched)
      bytes *= static_cast<size_t>(options.batch);
    room.emplace_back((bytes + 7) / 8);
    dataIndex.push_back(isReplayInput(input.name) ? -1 : next++);
    field.push_back(-1);
    for (size_t f = 0; options.replayed() > 0 && f < options.buffer->fields().size(); ++f)
      if (options.buffer->fields()[f].name == input.name)
        field.back() = static_cast<int64_t>(f);
  }
}

Result<std::unique_ptr<TaskSource>> TaskSource::make(std::unique_ptr<BatchSource> data,
                                                     std::vector<InputSpec> inputs,
                                                     const TaskSourceOptions &options) {
  if (options.fresh() < 1)
    return Status::usage("a micro-batch of " + std::to_string(options.batch) +
                         " samples has no room for new ones beside " +
                         std::to_string(options.replayed()) + " replayed ones");
  for (const InputSpec &input : inputs)
    if ((input.name == replayWeightInput || input.name == replayMatchInput) &&
        (input.dtype != DType::f32 || !input.batched || input.shape.size() != 1))
      return Status::damaged("the input '" + input.name + "' is not f32 by sample");
  std::unique_ptr<TaskSource> made(
      new TaskSource(std::move(data), std::move(inputs), options));
  for (size_t i = 0; options.replayed() > 0 && i < made->inputs.size(); ++i) {
    const InputSpec &input = made->inputs[i];
    bool isMade = input.name == replayWeightInput || input.name == replayMatchInput;
    if (isMade)
      continue;
    if (made->field[i] < 0)
      return Status::refused("the replay buffer does not keep the input '" + input.name +
                             "'");
    uint64_t kept = options.buffer->fields()[static_cast<size_t>(made->field[i])].bytes;
    if (!input.batched || kept != input.sampleBytes())
      return Status::refused("the replay buffer keeps " + std::to_string(kept) +
                             " bytes of the input '" + input.name + "', expected " +
                             std::to_string(input.sampleBytes()));
  }
  return made;
}

int64_t TaskSource::batchCount() const {
  return (data->size() + options.fresh() - 1) / options.fresh();
}

int64_t TaskSource::size() const {
  return data->size() + batchCount() * options.replayed();
}

EpochBatches TaskSource::batches(int64_t) const {
  int64_t rest = data->size() % options.fresh();
  return {batchCount(), data->size() / options.fresh(),
          rest > 0 ? rest + options.replayed() : 0};
}

bool TaskSource::endsEpoch(const Batch &batch) const {
  return (batch.firstSample + batch.count - options.firstPosition) % size() == 0;
}

Status TaskSource::seek(int64_t sample) {
  int64_t place = sample - options.firstPosition;
  if (place < 0)
    return Status::refused("sample " + std::to_string(sample) +
                           " is of a task before: this one begins at " +
                           std::to_string(options.firstPosition));
  int64_t epoch = place / size(), inEpoch = place % size();
  if (inEpoch % options.batch != 0)
    return Status::refused("sample " + std::to_string(sample) +
                           " lies inside a batch of this task: it was left off with "
                           "other data, another buffer or another ratio");
  position = place;
  return data->seek(epoch * data->size() + inEpoch / options.batch * options.fresh());
}

Status TaskSource::next(Batch &batch) {
  if (Status status = data->next(fresh); !status.ok())
    return status;
  float freshWeight = 1;
  std::vector<ReplayShare> shares;
  if (options.replayed() > 0) {
    auto key = static_cast<uint64_t>(options.firstPosition + position);
    auto drawn = drawShares(*options.buffer, options.mix, fresh.count, key, freshWeight);
    if (!drawn)
      return drawn.status();
    shares = std::move(*drawn);
  }
  place(fresh, shares, freshWeight);
  batch.data.clear();
  for (size_t i = 0; i < inputs.size(); ++i)
    batch.data.push_back(room[i].data());
  batch.count = fresh.count + static_cast<int64_t>(shares.size());
  batch.firstSample = options.firstPosition + position;
  batch.bucket = fresh.bucket;
  batch.shapes.clear(), batch.given.clear();
  batch.samples = {};
  position += batch.count;
  return Status::success();
}

void TaskSource::place(const Batch &from, std::span<const ReplayShare> shares,
                       float freshWeight) {
  auto count = static_cast<size_t>(from.count);
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto *bytes = reinterpret_cast<uint8_t *>(room[i].data());
    const size_t each = inputs[i].sampleBytes();
    if (dataIndex[i] >= 0) {
      const void *given = from.data[static_cast<size_t>(dataIndex[i])];
      std::memcpy(bytes, given, inputs[i].batched ? each * count : each);
    } else if (inputs[i].name == replayLogitsInput) {
      std::memset(bytes, 0, each * count);
    } else {
      bool isWeight = inputs[i].name == replayWeightInput;
      auto *values = reinterpret_cast<float *>(bytes);
      std::fill_n(values, count, isWeight ? freshWeight : 0);
      for (size_t s = 0; s < shares.size(); ++s)
        values[count + s] = isWeight ? shares[s].weight : shares[s].match;
      continue;
    }
    for (size_t s = 0; s < shares.size(); ++s)
      std::memcpy(bytes + (count + s) * each,
                  options.buffer->field(shares[s].index, static_cast<size_t>(field[i])),
                  each);
  }
}

} // namespace sluice
