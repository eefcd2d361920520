#pragma once
// Makes a sequence of runs faster within a budget: runs that need not happen again are
// left out.

#include "passes/planning/RecomputeSchedule.h"

namespace sluice {

/// Leaves out further runs, those that save most time first, while the simulated peak
/// stays within `targetBytes`; their readers take the instance before. At most
/// `simulations` are tried.
std::vector<int32_t> dropRuns(const RecomputeGraph &graph, ScheduleSimulator &simulator,
                              std::vector<int32_t> sequence, int64_t targetBytes,
                              int simulations);

} // namespace sluice
