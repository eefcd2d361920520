#include "passes/planning/PlacementSwaps.h"

#include <algorithm>
#include <limits>
#include <random>

namespace sluice {
namespace {

constexpr int64_t aboveAll = std::numeric_limits<int64_t>::max();

class Swapper {
public:
  Swapper(const PlacementModel &model, std::vector<int32_t> start,
          const SwapSearch &search)
      : model(model), search(search), random(search.seed), left(search.pairBudget),
        order(std::move(start)), offsets(order.size(), -1), excess(order.size(), 0),
        position(order.size()) {
    listOverlaps(model, neighborBegin, neighbors);
  }

  std::vector<int64_t> run() {
    next = order;
    int64_t cost = placeFrom(0, aboveAll);
    accept();
    std::vector<int64_t> best = offsets;
    int64_t bestPeak = peakOf(model, best);
    std::vector<int64_t> history(size_t(std::max(1, search.patience)), cost);
    for (size_t round = 0; cost > 0 && left > 0; ++round) {
      int64_t &earlier = history[round % history.size()];
      int64_t limit = search.patience > 0 ? std::max(cost, earlier) : cost;
      int64_t moved = placeFrom(moveOne(), limit);
      if (moved <= limit) {
        cost = moved;
        accept();
        if (int64_t peak = peakOf(model, offsets); peak < bestPeak) {
          bestPeak = peak;
          best = offsets;
        }
      }
      earlier = cost;
    }
    return best;
  }

private:
  size_t below(size_t count) { return size_t(random() % uint32_t(count)); }

  void accept() {
    std::swap(order, next);
    std::swap(offsets, nextOffsets);
    std::swap(excess, nextExcess);
    std::swap(placedNow, placed);
  }

  /// Puts a neighbor of `order` into `next`; returns the first place that differs.
  size_t moveOne() {
    next = order;
    above.clear();
    for (size_t i = 0; i < order.size(); ++i) {
      position[order[i]] = i;
      if (offsets[order[i]] + model.blocks[order[i]].size > search.target)
        above.push_back(i);
    }
    bool stray = int(random() % 100) < search.strayPercent;
    size_t from = stray ? below(order.size()) : above[below(above.size())];
    int64_t begin = neighborBegin[order[from]], end = neighborBegin[order[from] + 1];
    --left; // moves that change nothing end too
    if (begin == end)
      return order.size();
    size_t to = position[neighbors[size_t(begin) + below(size_t(end - begin))]];
    auto at = next.begin();
    if (random() % 3 != 0)
      std::swap(next[from], next[to]);
    else if (to < from)
      std::rotate(at + int64_t(to), at + int64_t(from), at + int64_t(from) + 1);
    else
      std::rotate(at + int64_t(from), at + int64_t(from) + 1, at + int64_t(to) + 1);
    return std::min(from, to);
  }

  /// Places `next` from a position on; what is before it lies as in `order`. Returns the
  /// bytes above the target, or any number above the limit.
  int64_t placeFrom(size_t first, int64_t limit) {
    nextOffsets = offsets;
    nextExcess = excess;
    for (size_t i = first; i < order.size(); ++i)
      nextOffsets[order[i]] = -1;
    placed = placedNow;
    placed.filter([&](const PlacementBlock &block) {
      return nextOffsets[&block - model.blocks.data()] >= 0;
    });
    int64_t cost = first > 0 ? excess[first - 1] : 0;
    for (size_t i = first; i < next.size() && cost <= limit; ++i) {
      const PlacementBlock &block = model.blocks[next[i]];
      int64_t offset = placed.findGap(block, GapRule::Lowest);
      nextOffsets[next[i]] = offset;
      placed.insert(block, offset);
      left -= neighborBegin[next[i] + 1] - neighborBegin[next[i]];
      int64_t over = offset + block.size - search.target;
      cost += std::clamp<int64_t>(over, 0, block.size);
      nextExcess[i] = cost;
    }
    return cost;
  }

  const PlacementModel &model;
  const SwapSearch &search;
  std::mt19937 random;
  int64_t left; // pairs
  std::vector<int32_t> order, next;
  std::vector<int64_t> offsets, nextOffsets; // by block
  std::vector<int64_t> excess, nextExcess;   // above the target, up to each place
  std::vector<size_t> position, above;       // of blocks; places in the order
  std::vector<int64_t> neighborBegin;
  std::vector<int32_t> neighbors;
  PlacedBlocks placedNow, placed; // under `order`, under `next`
};

} // namespace

std::vector<int64_t> placeBySwaps(const PlacementModel &model, std::vector<int32_t> order,
                                  const SwapSearch &search) {
  return Swapper(model, std::move(order), search).run();
}

} // namespace sluice
