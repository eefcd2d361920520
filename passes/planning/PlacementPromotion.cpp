#include "passes/planning/PlacementPromotion.h"

#include <algorithm>
#include <random>

namespace sluice {

std::vector<int64_t> placeByPromotion(const PlacementModel &model, GapFitter &fitter,
                                      std::vector<int32_t> order, GapRule rule,
                                      int64_t target, int rounds) {
  constexpr int patience = 12;
  std::mt19937 random(1);
  std::vector<int32_t> bestOrder = order, highest;
  std::vector<int64_t> bestOffsets;
  int64_t bestPeak = INT64_MAX;
  int since = 0;
  for (int round = 0; round < rounds && bestPeak > target; ++round) {
    std::vector<int64_t> offsets = fitter.place(order, rule);
    int64_t peak = peakOf(model, offsets);
    ++since;
    if (peak <= bestPeak) { // sideways too
      since = peak < bestPeak ? 0 : since;
      bestPeak = peak;
      bestOrder = order;
      bestOffsets = offsets;
    }
    if (since > patience) {
      since = 0;
      order = bestOrder;
      offsets = bestOffsets;
    }
    highest.clear();
    int64_t top = peakOf(model, offsets);
    for (int32_t b : order)
      if (offsets[b] + model.blocks[b].size == top)
        highest.push_back(b);
    for (int32_t b : highest) {
      auto at = std::find(order.begin(), order.end(), b);
      if (at == order.begin())
        at = order.begin() + int64_t(random() % order.size()); // it leads already
      auto to = order.begin() + int64_t(random() % uint32_t(at - order.begin() + 1));
      std::rotate(to, at, at + 1);
    }
  }
  return bestOffsets;
}

} // namespace sluice
