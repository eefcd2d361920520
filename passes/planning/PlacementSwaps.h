#pragma once
// Local search over the orders in which blocks are placed, for the last few percent.

#include "passes/planning/GreedyPlacement.h"

namespace sluice {

struct SwapSearch {
  int64_t target;     ///< peak at which the search ends
  int64_t pairBudget; ///< overlapping pairs looked at, at most
  uint32_t seed = 1;
  int patience = 0; ///< a step may be worse than the last if it is not than so many back
  int strayPercent = 5; ///< of the moved blocks: any, instead of one above the target
};

/// Places blocks at the lowest gap in turn, then moves those that end above the target in
/// the order, in front of or instead of blocks they overlap in time, as long as what lies
/// above the target does not grow (late acceptance: Burke and Bykov 2017). Returns the
/// offsets of the lowest peak met. Knows no fixed offsets. Deterministic.
std::vector<int64_t> placeBySwaps(const PlacementModel &model, std::vector<int32_t> order,
                                  const SwapSearch &search);

} // namespace sluice
