#pragma once
// The placement problem as the planner works on it: times compressed to sections, sizes
// rounded to their alignment, buffers without bytes or life left out.

#include "passes/planning/MemoryPlanner.h"

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

/// A section is a maximal set of buffers that are live together. Two buffers overlap in
/// time if and only if their section ranges do, and there are at most as many sections as
/// buffers.
struct PlacementBlock {
  int32_t firstSection = 0, endSection = 0; // half open
  int64_t size = 0;                         // rounded
  int64_t align = 1;
  int64_t fixedOffset = -1; // -1: free
  int64_t lifetime = 0;     // in the problem's own time, for the orders
  int32_t source = 0;       // index of the buffer in the problem

  double area() const { return double(size) * double(lifetime); }
  bool fixed() const { return fixedOffset >= 0; }
};

struct PlacementModel {
  std::vector<PlacementBlock> blocks; // by (begin, end descending, source)
  int32_t sections = 0;
  int64_t lowerBound = 0;
  int64_t granularity = 1;  // every canonical offset and peak is a multiple of it
  int64_t overlapPairs = 0; // pairs of blocks that overlap in time
  bool anyFixed = false;
  bool oneAlignment = true;

  /// Empty `error` when well formed.
  static PlacementModel build(const PlacementProblem &problem, std::string &error);

  /// The same problem with time running backwards; offsets of blocks are valid in both.
  PlacementModel reversed() const;
};

inline int64_t roundUp(int64_t value, int64_t align) {
  return (value + align - 1) / align * align;
}

/// Peak of complete offsets, one per block.
int64_t peakOf(const PlacementModel &model, const std::vector<int64_t> &offsets);

} // namespace sluice
