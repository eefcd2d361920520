#pragma once
// Constructive placements: each takes an order of the blocks and gives complete offsets.

#include "passes/planning/PlacementModel.h"

namespace sluice {

enum class PlacementKey { Size, Area, Lifetime, Start };

/// Blocks by falling size, area or lifetime, or by rising start; ties by start.
std::vector<int32_t> placementOrder(const PlacementModel &model, PlacementKey key);

/// Puts each block on top of all earlier ones it overlaps in time, filling no holes: O(n
/// log n). By falling lifetime this is exact for nested live ranges, the shape of a
/// forward and backward pass. Knows no fixed offsets.
std::vector<int64_t> stackOnSkyline(const PlacementModel &model,
                                    const std::vector<int32_t> &order);

/// Plays the program through a best-fit allocator that frees at the end of life: O(n log
/// n). Knows no fixed offsets.
std::vector<int64_t> allocateInTime(const PlacementModel &model);

enum class GapRule { Lowest, Smallest };

/// Placed blocks by offset, for gaps among few of them: a look along the list is cheaper
/// than sorting the neighbors of each block.
class PlacedBlocks {
public:
  static constexpr size_t most = 4096;

  void clear() { list.clear(); }
  void insert(const PlacementBlock &block, int64_t offset);
  template <typename Keeps> void filter(Keeps keeps) {
    std::erase_if(list, [&](const Placed &placed) { return !keeps(*placed.block); });
  }
  int64_t findGap(const PlacementBlock &block, GapRule rule) const;

private:
  struct Placed {
    int64_t offset, end;
    int32_t firstSection, endSection;
    const PlacementBlock *block;
  };
  std::vector<Placed> list;
};

/// Puts each block into a gap between the placed blocks that it overlaps in time, fixed
/// blocks first. O(overlapping pairs) per order.
class GapFitter {
public:
  explicit GapFitter(const PlacementModel &model);
  std::vector<int64_t> place(const std::vector<int32_t> &order, GapRule rule);

private:
  int64_t findGap(int32_t block, GapRule rule);

  const PlacementModel &model;
  std::vector<int64_t> neighborBegin; // block -> range in `neighbors`
  std::vector<int32_t> neighbors;     // blocks that overlap it in time
  std::vector<int64_t> offsets;       // -1: not placed yet
  std::vector<std::pair<int64_t, int64_t>>
      occupied;        // scratch: (offset, end) of placed neighbors
  PlacedBlocks placed; // of few blocks only
};

/// Pairs of overlapping blocks up to which a GapFitter is affordable (8 bytes each).
constexpr int64_t maxGapFitPairs = 20'000'000;

/// CSR list of the overlaps in time: neighbors of block b are [begin[b], begin[b + 1]).
void listOverlaps(const PlacementModel &model, std::vector<int64_t> &begin,
                  std::vector<int32_t> &neighbors);

} // namespace sluice
