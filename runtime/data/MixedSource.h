#pragma once
// Several sources as one, such as one for each bucket of shapes. A batch comes from one
// of them.

#include "runtime/BatchSource.h"

#include <memory>
#include <vector>

namespace sluice {

class MixedSource final : public BatchSource {
public:
  struct Part {
    std::unique_ptr<BatchSource> source;
    uint32_t bucket = 0;
    int64_t batch = 1; // samples of its batches
  };

  /// With `shuffle` which part a batch comes from depends on (seed, epoch) alone, else
  /// the parts follow each other; each part keeps its own order. Needs a part.
  MixedSource(std::vector<Part> parts, bool shuffle, uint64_t seed);

  int64_t size() const override { return sampleCount; }
  EpochBatches batches(int64_t batch) const override;
  /// Refused inside a batch: where a batch ends depends on the parts.
  Status seek(int64_t sample) override;
  Status next(Batch &batch) override;

private:
  size_t partAt(int64_t place) const;
  int64_t countOf(size_t part, int64_t batch) const;
  Status readFrom(size_t part, Batch &batch);

  std::vector<Part> parts;
  std::vector<int64_t> taken; // batches of each part in this epoch
  std::vector<bool> isPlaced; // the part's source stands there
  bool shuffle;
  uint64_t seed;
  int64_t sampleCount = 0, batchCount = 0;
  int64_t epoch = 0, nextBatch = 0; // batch of the epoch that comes next
  int64_t position = 0;             // its first sample
};

} // namespace sluice
