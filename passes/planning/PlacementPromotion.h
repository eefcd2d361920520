#pragma once
// Local search over orders for gap fitting.

#include "passes/planning/GreedyPlacement.h"

namespace sluice {

/// Places by `order` again and again, each time with what reached the peak moved towards
/// the front; from the best order so far where that gains nothing. Stops at `target` or
/// after `rounds`; gives the offsets of the lowest peak. Deterministic.
std::vector<int64_t> placeByPromotion(const PlacementModel &model, GapFitter &fitter,
                                      std::vector<int32_t> order, GapRule rule,
                                      int64_t target, int rounds);

} // namespace sluice
