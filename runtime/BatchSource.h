#pragma once
// Where samples come from. The sources for files (IDX, CSV, npy, ...) are in
// runtime/data; a service writes its own.

#include "runtime/DType.h"
#include "runtime/Status.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sluice {

/// One input of a program, as a source must deliver it.
struct InputSpec {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t>
      shape; // of a whole batch; dimension 0 counts samples when `batched`
  bool batched = true;

  // The integers that are allowed, when `bounded`; for messages, the session checks them
  // itself.
  bool bounded = false;
  int64_t lower = 0, upper = 0;

  std::optional<double> fill = {}; // what a smaller sample is filled up with

  /// Bytes of one sample (of the whole tensor when not batched).
  size_t sampleBytes() const {
    size_t bytes = dtypeSize(dtype);
    for (size_t i = batched ? 1 : 0; i < shape.size(); ++i)
      bytes *= static_cast<size_t>(shape[i]);
    return bytes;
  }
};

/// Up to one micro-batch of samples. The memory belongs to the source and stays valid
/// until its next call.
struct Batch {
  /// One pointer per InputSpec the source was made for, in that order: `count` samples,
  /// contiguous, row-major (an input that is not batched: the whole tensor).
  std::vector<const void *> data;
  int64_t count =
      0; // real samples, 1 <= count <= batch size; the session pads, not the source

  /// Position of the first sample in the endless sequence of epochs: epoch * size() +
  /// place in the epoch's order. It keys the random numbers, and is what a checkpoint
  /// stores as the cursor.
  int64_t firstSample = 0;

  /// The bucket of the plan whose shapes the data has.
  uint32_t bucket = 0;
  /// One per input, or none when the data has the bucket's shapes: where an input is
  /// smaller, the session fills it up. Dimension 0 of batched inputs is `count`.
  std::vector<std::span<const int64_t>> shapes;

  // Of sources of files; none where others do not say it.
  /// Which sample of the data each is.
  std::span<const int64_t> samples = {};
  /// By input: the shapes its samples had before the source has filled them up, one after
  /// the other; empty where it has not.
  std::vector<std::span<const int64_t>> given = {};
};

/// How many batches an epoch has.
struct EpochBatches {
  int64_t all = 0, full = 0;
  int64_t restSamples = 0; // of those that are not full
};

/// An endless sequence of samples: epoch after epoch, each a permutation of the same
/// size() samples that depends on (seed, epoch) alone, so that `seek` lands where an
/// uninterrupted run would be.
class BatchSource {
public:
  virtual ~BatchSource() = default;

  /// Samples per epoch, > 0.
  virtual int64_t size() const = 0;

  /// `batch`: samples of a batch, for sources that do not know it.
  virtual EpochBatches batches(int64_t batch) const {
    return {(size() + batch - 1) / batch, size() / batch, size() % batch};
  }

  /// Whether the batch is the last one of its epoch.
  virtual bool endsEpoch(const Batch &batch) const {
    return (batch.firstSample + batch.count) % size() == 0;
  }

  /// The next batch starts at this position of the sequence (>= 0).
  virtual Status seek(int64_t sample) = 0;

  /// Delivers the next batch. A batch never crosses the end of an epoch: the last one of
  /// an epoch may be short.
  virtual Status next(Batch &batch) = 0;
};

} // namespace sluice
