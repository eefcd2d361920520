#include "runtime/data/MixedSource.h"

#include "runtime/data/Permutation.h"

#include <algorithm>

namespace sluice {

static int64_t batchesOf(const MixedSource::Part &part) {
  return (part.source->size() + part.batch - 1) / part.batch;
}

MixedSource::MixedSource(std::vector<Part> given, bool shuffle, uint64_t seed)
    : parts(std::move(given)), taken(parts.size(), 0), isPlaced(parts.size(), false),
      shuffle(shuffle), seed(seed) {
  for (const Part &part : parts) {
    sampleCount += part.source->size();
    batchCount += batchesOf(part);
  }
}

EpochBatches MixedSource::batches(int64_t) const {
  EpochBatches sum;
  for (const Part &part : parts) {
    sum.all += batchesOf(part);
    sum.full += part.source->size() / part.batch;
    sum.restSamples += part.source->size() % part.batch;
  }
  return sum;
}

/// The part of a batch of this epoch.
size_t MixedSource::partAt(int64_t place) const {
  int64_t index = place;
  if (shuffle) {
    SamplePermutation order(seed, static_cast<uint64_t>(epoch),
                            static_cast<uint64_t>(batchCount));
    index = static_cast<int64_t>(order(static_cast<uint64_t>(place)));
  }
  size_t part = 0;
  while (index >= batchesOf(parts[part]))
    index -= batchesOf(parts[part++]);
  return part;
}

/// Samples of a batch of an epoch of the part.
int64_t MixedSource::countOf(size_t part, int64_t batch) const {
  int64_t size = parts[part].batch;
  return std::min(size, parts[part].source->size() - batch * size);
}

Status MixedSource::seek(int64_t sample) {
  if (sample < 0)
    return Status::usage("cannot seek to the sample " + std::to_string(sample) +
                         ", expected 0 or more");
  epoch = sample / sampleCount;
  position = epoch * sampleCount;
  std::fill(taken.begin(), taken.end(), 0);
  std::fill(isPlaced.begin(), isPlaced.end(), false);
  for (nextBatch = 0; position < sample; ++nextBatch) {
    size_t part = partAt(nextBatch);
    position += countOf(part, taken[part]++);
  }
  if (position > sample)
    return Status::refused("sample " + std::to_string(sample) +
                           " lies inside a batch of this data: it was left off with "
                           "other data or other shapes");
  return Status::success();
}

Status MixedSource::readFrom(size_t index, Batch &batch) {
  Part &part = parts[index];
  int64_t first = epoch * part.source->size() + taken[index] * part.batch;
  if (!isPlaced[index])
    if (Status status = part.source->seek(first); !status.ok())
      return status;
  isPlaced[index] = true;
  return part.source->next(batch);
}

Status MixedSource::next(Batch &batch) {
  if (nextBatch == batchCount) {
    ++epoch, nextBatch = 0;
    std::fill(taken.begin(), taken.end(), 0);
  }
  size_t part = partAt(nextBatch);
  if (Status status = readFrom(part, batch); !status.ok())
    return status;
  ++taken[part];
  batch.bucket = parts[part].bucket;
  batch.firstSample = position;
  position += batch.count;
  ++nextBatch;
  return Status::success();
}

} // namespace sluice
