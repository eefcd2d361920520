#include "passes/planning/GreedyPlacement.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace sluice {

std::vector<int32_t> placementOrder(const PlacementModel &model, PlacementKey key) {
  const auto &blocks = model.blocks;
  std::vector<int32_t> order(blocks.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const PlacementBlock &x = blocks[a], &y = blocks[b];
    if (key == PlacementKey::Size && x.size != y.size)
      return x.size > y.size;
    if (key == PlacementKey::Area && x.area() != y.area())
      return x.area() > y.area();
    if (key == PlacementKey::Lifetime && x.lifetime != y.lifetime)
      return x.lifetime > y.lifetime;
    if (x.firstSection != y.firstSection)
      return x.firstSection < y.firstSection;
    if (x.lifetime != y.lifetime)
      return x.lifetime > y.lifetime;
    return x.size != y.size ? x.size > y.size : a < b;
  });
  return order;
}

namespace {

/// Heights over the sections: range maximum and range assignment. A range is only ever
/// assigned a height of at least its maximum, so `assigned` of a node holds for all below
/// it that are lower.
class Skyline {
public:
  explicit Skyline(int32_t sections) {
    while (width < sections)
      width *= 2;
    highest.assign(2 * size_t(width), 0);
    assigned.assign(2 * size_t(width), 0);
  }
  int64_t maximum(int32_t first, int32_t end) const {
    return maximum(1, 0, width, first, end);
  }
  void raise(int32_t first, int32_t end, int64_t height) {
    raise(1, 0, width, first, end, height);
  }

private:
  int64_t maximum(size_t node, int32_t low, int32_t high, int32_t first,
                  int32_t end) const {
    if (end <= low || high <= first)
      return 0;
    if (first <= low && high <= end)
      return highest[node];
    int32_t mid = low + (high - low) / 2;
    return std::max({assigned[node], maximum(2 * node, low, mid, first, end),
                     maximum(2 * node + 1, mid, high, first, end)});
  }
  void raise(size_t node, int32_t low, int32_t high, int32_t first, int32_t end,
             int64_t height) {
    if (end <= low || high <= first)
      return;
    highest[node] = std::max(highest[node], height);
    if (first <= low && high <= end) {
      assigned[node] = height;
      return;
    }
    int32_t mid = low + (high - low) / 2;
    raise(2 * node, low, mid, first, end, height);
    raise(2 * node + 1, mid, high, first, end, height);
  }

  int32_t width = 1;
  std::vector<int64_t> highest, assigned;
};

/// Free ranges below the top of a growing arena, found by best fit and merged when freed.
class FreeList {
public:
  int64_t allocate(int64_t size, int64_t align) {
    for (auto it = bySize.lower_bound({size, 0}); it != bySize.end(); ++it) {
      auto [gap, offset] = *it;
      int64_t aligned = roundUp(offset, align);
      if (aligned + size > offset + gap)
        continue;
      erase(offset, gap);
      insert(offset, aligned - offset);
      insert(aligned + size, offset + gap - aligned - size);
      return aligned;
    }
    int64_t start = top;
    if (!byOffset.empty()) { // a range that reaches the top is extended
      auto [offset, gap] = *byOffset.rbegin();
      if (offset + gap == top) {
        start = offset;
        erase(offset, gap);
      }
    }
    int64_t aligned = roundUp(start, align);
    insert(start, aligned - start);
    top = std::max(top, aligned + size);
    return aligned;
  }
  void release(int64_t offset, int64_t size) {
    auto next = byOffset.lower_bound(offset);
    if (next != byOffset.end() && offset + size == next->first) {
      size += next->second;
      erase(next->first, next->second);
      next = byOffset.lower_bound(offset);
    }
    if (next != byOffset.begin()) {
      auto previous = std::prev(next);
      if (previous->first + previous->second == offset) {
        offset = previous->first;
        size += previous->second;
        erase(previous->first, previous->second);
      }
    }
    insert(offset, size);
  }

private:
  void insert(int64_t offset, int64_t size) {
    if (size <= 0)
      return;
    byOffset[offset] = size;
    bySize.insert({size, offset});
  }
  void erase(int64_t offset, int64_t size) {
    byOffset.erase(offset);
    bySize.erase({size, offset});
  }

  std::map<int64_t, int64_t> byOffset;          // offset -> size
  std::set<std::pair<int64_t, int64_t>> bySize; // (size, offset)
  int64_t top = 0;
};

} // namespace

std::vector<int64_t> stackOnSkyline(const PlacementModel &model,
                                    const std::vector<int32_t> &order) {
  std::vector<int64_t> offsets(model.blocks.size());
  Skyline skyline(model.sections);
  for (int32_t index : order) {
    const PlacementBlock &block = model.blocks[index];
    offsets[index] =
        roundUp(skyline.maximum(block.firstSection, block.endSection), block.align);
    skyline.raise(block.firstSection, block.endSection, offsets[index] + block.size);
  }
  return offsets;
}

std::vector<int64_t> allocateInTime(const PlacementModel &model) {
  std::vector<int64_t> offsets(model.blocks.size());
  std::vector<int32_t> byEnd(model.blocks.size());
  std::iota(byEnd.begin(), byEnd.end(), 0);
  std::sort(byEnd.begin(), byEnd.end(), [&](int32_t a, int32_t b) {
    return std::pair(model.blocks[a].endSection, a) <
           std::pair(model.blocks[b].endSection, b);
  });
  FreeList arena;
  size_t nextEnd = 0;
  for (int32_t index : placementOrder(model, PlacementKey::Start)) {
    const PlacementBlock &block = model.blocks[index];
    for (; nextEnd < byEnd.size() &&
           model.blocks[byEnd[nextEnd]].endSection <= block.firstSection;
         ++nextEnd)
      arena.release(offsets[byEnd[nextEnd]], model.blocks[byEnd[nextEnd]].size);
    offsets[index] = arena.allocate(block.size, block.align);
  }
  return offsets;
}

void listOverlaps(const PlacementModel &model, std::vector<int64_t> &begin,
                  std::vector<int32_t> &neighbors) {
  // Blocks live at the start of each block, found by a walk over time with a compact list
  // of live blocks.
  std::vector<int32_t> order = placementOrder(model, PlacementKey::Start);
  auto forEachPair = [&](auto visit) {
    std::vector<int32_t> live;
    for (int32_t index : order) {
      size_t kept = 0;
      for (int32_t other : live)
        if (model.blocks[other].endSection > model.blocks[index].firstSection) {
          live[kept++] = other;
          visit(index, other);
        }
      live.resize(kept);
      live.push_back(index);
    }
  };
  begin.assign(model.blocks.size() + 1, 0);
  forEachPair([&](int32_t a, int32_t b) { ++begin[a + 1], ++begin[b + 1]; });
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  neighbors.resize(size_t(begin.back()));
  std::vector<int64_t> next(begin.begin(), begin.end() - 1);
  forEachPair([&](int32_t a, int32_t b) {
    neighbors[size_t(next[a]++)] = b;
    neighbors[size_t(next[b]++)] = a;
  });
}

void PlacedBlocks::insert(const PlacementBlock &block, int64_t offset) {
  auto at = std::partition_point(list.begin(), list.end(), [&](const Placed &placed) {
    return placed.offset < offset;
  });
  list.insert(
      at, {offset, offset + block.size, block.firstSection, block.endSection, &block});
}

int64_t PlacedBlocks::findGap(const PlacementBlock &block, GapRule rule) const {
  int64_t top = 0, best = -1, bestGap = 0;
  for (const Placed &placed : list) {
    if (placed.endSection <= block.firstSection ||
        block.endSection <= placed.firstSection)
      continue;
    int64_t aligned = roundUp(top, block.align), gap = placed.offset - top;
    if (aligned + block.size <= placed.offset && (best < 0 || gap < bestGap)) {
      best = aligned;
      bestGap = gap;
      if (rule == GapRule::Lowest)
        return best;
    }
    top = std::max(top, placed.end);
  }
  return best >= 0 ? best : roundUp(top, block.align);
}

GapFitter::GapFitter(const PlacementModel &model) : model(model) {
  listOverlaps(model, neighborBegin, neighbors);
}

int64_t GapFitter::findGap(int32_t index, GapRule rule) {
  const PlacementBlock &block = model.blocks[index];
  if (model.blocks.size() <= PlacedBlocks::most)
    return placed.findGap(block, rule);
  occupied.clear();
  for (int64_t i = neighborBegin[index]; i < neighborBegin[index + 1]; ++i) {
    int32_t other = neighbors[size_t(i)];
    if (offsets[other] >= 0)
      occupied.push_back({offsets[other], offsets[other] + model.blocks[other].size});
  }
  std::sort(occupied.begin(), occupied.end());

  int64_t top = 0, best = -1, bestGap = 0;
  for (auto [offset, end] : occupied) {
    int64_t aligned = roundUp(top, block.align), gap = offset - top;
    if (aligned + block.size <= offset && (best < 0 || gap < bestGap)) {
      best = aligned;
      bestGap = gap;
      if (rule == GapRule::Lowest)
        return best;
    }
    top = std::max(top, end);
  }
  return best >= 0 ? best : roundUp(top, block.align);
}

std::vector<int64_t> GapFitter::place(const std::vector<int32_t> &order, GapRule rule) {
  offsets.assign(model.blocks.size(), -1);
  placed.clear();
  auto put = [&](int32_t index, int64_t offset) {
    offsets[index] = offset;
    if (model.blocks.size() <= PlacedBlocks::most)
      placed.insert(model.blocks[index], offset);
  };
  for (size_t i = 0; i < model.blocks.size(); ++i)
    if (model.blocks[i].fixed())
      put(int32_t(i), model.blocks[i].fixedOffset);
  for (int32_t index : order)
    if (offsets[index] < 0)
      put(index, findGap(index, rule));
  return offsets;
}

} // namespace sluice
