#pragma once
// What a plan needs in whatever order its runs are launched.

#include "passes/planning/Recompute.h"

namespace sluice {

/// No order of the runs of `solution`, backward operations included, has a lower peak;
/// nor if clones drop results that nothing reads, or optional inputs. O(runs + reads).
int64_t leastBytesInAnyOrder(const RecomputeProblem &problem,
                             const RecomputeSolution &solution);

} // namespace sluice
