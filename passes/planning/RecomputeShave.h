#pragma once
// Lowers the peak of a sequence of runs: values that nothing at a peak touches are
// dropped across it and computed again behind, from what is there.

#include "passes/planning/RecomputeSchedule.h"

namespace sluice {

/// The sequence with further runs such that fewer runs hold more than `targetBytes`.
/// O(passes * (runs + reads) * log runs).
std::vector<int32_t> shavePeaks(const RecomputeGraph &graph,
                                std::vector<int32_t> sequence, int64_t targetBytes);

} // namespace sluice
