#pragma once
// What a plan costs in loss beside another one of the same spec, from runs of both on the
// same batches.

#include "runtime/probe/RunningMean.h"

#include <span>
#include <vector>

namespace sluice {

/// Losses by update of both plans, from the same seed: the same batches in the same order
/// and the same random numbers, so that what differs is the plan.
struct PairedRun {
  std::vector<double> ours, reference;
};

/// Over the second half of every run: the first is where losses fall most, and where a
/// small lag is a large difference.
struct LossDifference {
  double ours = 0, reference = 0; // mean losses
  double mean = 0;                // ours - reference
  /// The larger of two: over windows, four of each run, and over runs. Losses of updates
  /// near each other are alike, so that single updates would give too small an error.
  double standardError = 0, halfInterval = 0;
  int64_t windows = 0;
  bool isOverRuns = false;    // which of the two
  double referenceSpread = 0; // standard deviation of the reference between runs
  bool isSeen() const { return mean > halfInterval || mean < -halfInterval; }
};

/// Runs of equal length, at least 8.
LossDifference compareLosses(std::span<const PairedRun> runs);

} // namespace sluice
