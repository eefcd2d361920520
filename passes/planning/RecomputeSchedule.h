#pragma once
// From a decision what to keep to the sequence of runs, and from a sequence of runs to
// its time and peak.

#include "passes/planning/RecomputeGraph.h"

namespace sluice {

struct ScheduleCost {
  double timeUs = 0;
  int64_t peakBytes = 0;
};

/// Keeps scratch space between calls: planners simulate thousands of schedules.
class ScheduleSimulator {
public:
  explicit ScheduleSimulator(const RecomputeGraph &graph);

  /// Runs the forward part once, then each backward operation; what it reads and `kept`
  /// does not hold is computed again just before, and stays until its last reader.
  /// O(runs + reads).
  const std::vector<int32_t> &sequenceFor(const std::vector<char> &kept);

  /// Runs whose results nobody reads before they are computed again do not count, as long
  /// as one run of the operation remains. O(runs + reads).
  ScheduleCost simulate(const std::vector<int32_t> &sequence);

  ScheduleCost simulateKept(const std::vector<char> &kept) {
    return simulate(sequenceFor(kept));
  }

  /// Operations that run again under `kept`, known after sequenceFor.
  const std::vector<int32_t> &recomputed() const { return clones; }

  RecomputeSolution solutionOf(const std::vector<int32_t> &sequence);

private:
  void gather(int32_t value);

  const RecomputeGraph &graph;
  std::vector<char> available, alive;
  std::vector<int32_t> runs, sequence, clones, pending, stack;
  std::vector<char> dead; // by run, filled by simulate
  int64_t peakRun = -1;
};

} // namespace sluice
