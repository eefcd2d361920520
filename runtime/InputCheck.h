#pragma once
// Copies a batch into the step reservation: checks every value, fills a short batch up.

#include "runtime/Plan.h"

namespace sluice {

struct InputCheckOptions {
  bool rejectNonFinite = true; // NaN and infinities in float inputs
};

/// Copies `count` samples of one input to `target` (the port's place) and repeats them in
/// turn up to the batch. A value out of the port's bounds, or not finite, is refused
/// naming input, sample (in the batch, and counted from `firstSample`) and value;
/// `target` then holds nothing of use.
Status copyInput(const fbs::Port &port, const void *source, int64_t count, int64_t batch,
                 int64_t firstSample, const InputCheckOptions &options, uint8_t *target);

} // namespace sluice
