#pragma once
// Copies a batch into the step reservation: checks every value, fills a short batch up.

#include "runtime/Plan.h"

namespace sluice {

struct InputCheckOptions {
  bool rejectNonFinite = true; // NaN and infinities in float inputs
};

/// What a batch says of one input.
struct BatchPart {
  int64_t count = 0, batch = 0; // samples given, and planned for
  int64_t firstSample = 0;      // for messages
  /// Of the tensor given; empty: the port's, with `count` samples if batched.
  std::span<const int64_t> shape;
};

/// Copies one input to `target` (the port's place), fills it up where it is smaller than
/// the port, and repeats the samples in turn up to the batch. A value out of the port's
/// bounds, or not finite, is refused naming input, sample (in the batch, and counted from
/// `firstSample`) and value; `target` then holds nothing of use.
Status copyInput(const fbs::Port &port, const void *source, const BatchPart &part,
                 const InputCheckOptions &options, uint8_t *target);

} // namespace sluice
