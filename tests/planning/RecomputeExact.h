#pragma once
// Exact answers for small steps, by code as plain as it gets.

#include "passes/planning/Recompute.h"

#include <map>

namespace sluice::testing {

/// For every way to keep forward values: the step with what is missing run again just
/// before its first reader and kept. Gives the least time for each peak.
std::map<int64_t, double> timesOfAllChoices(const RecomputeProblem &problem);

/// Least time of any schedule within the budget, infinite if there is none. Shortest path
/// over sets of resident values.
double exactTime(const RecomputeProblem &problem, int64_t budgetBytes);

} // namespace sluice::testing
