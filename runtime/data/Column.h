#pragma once
// The data of one input of the model: a stored array seen as samples, and how to turn a
// sample into what the input wants.

#include "runtime/BatchSource.h"
#include "runtime/data/Convert.h"
#include "runtime/data/DataSpec.h"
#include "runtime/data/StoredArray.h"

namespace sluice {

struct Column {
  InputSpec input;
  StoredArray array;
  int64_t samples = 0;       ///< 0: one tensor for every batch (an input without batch)
  int64_t firstElement = 0;  ///< of sample 0
  int64_t stride = 0;        ///< elements from a sample to the next
  int64_t elements = 0;      ///< per sample
  bool channelsLast = false; ///< stored [H, W, C], wanted [C, H, W]
  /// Shape of a stored sample that is filled up to the input's; empty when they are
  /// equal.
  std::vector<int64_t> smaller;
  std::vector<AffineMap> maps = {AffineMap()}; ///< one, or one per channel

  /// Where samples have lengths of their own, along dimension 0 of a sample: those of all
  /// samples in the file, and the element each begins at.
  struct Ragged {
    std::vector<int64_t> lengths, begins;
  };
  std::shared_ptr<const Ragged> ragged;
  int64_t firstSample = 0; ///< in `ragged`: the first of the range

  bool batched() const { return samples > 0; }
  /// False if the sample is longer than the input, or shorter and nothing fills it up.
  bool fits(int64_t sample) const;
  int64_t lengthOf(int64_t sample) const {
    return ragged->lengths[static_cast<size_t>(firstSample + sample)];
  }
  /// True if some samples are, or may be, filled up.
  bool isFilled() const { return ragged || !smaller.empty(); }
  /// The shape a sample has in the file, one number for each dimension of the input's
  /// samples.
  void givenShape(int64_t sample, int64_t *out) const;
  /// Writes one sample, converted. Damaged when it holds what the type cannot.
  Status read(int64_t sample, uint8_t *out) const;

private:
  Status readStored(int64_t sample, int64_t count, uint8_t *out) const;
  int64_t beginOf(int64_t sample) const;
};

/// Dimension 0 of the array counts samples (not for an input without batch). The shape of
/// a sample must be the input's, up to dimensions of 1 and flattening to one dimension;
/// or smaller, where the input says what it is filled up with.
Result<Column> makeColumn(const DataSpec &spec, StoredArray array,
                          const InputSpec &input);

/// Samples of different lengths along their first dimension. `lengths` are integers, one
/// for each sample; the array is [samples, longest, ...], or has them end to end,
/// [sum of lengths, ...].
Result<Column> makeRaggedColumn(const DataSpec &spec, StoredArray array,
                                const StoredArray &lengths, const InputSpec &input);

/// Sample i holds the ids from shift + i * stride on, as many as the input's sample has.
/// `largestShift` of all columns over this text decides how many there are, so that
/// tokens and labels count the same.
Result<Column> makeWindowColumn(const DataSpec &spec, StoredArray array,
                                const InputSpec &input, int64_t largestShift);

} // namespace sluice
