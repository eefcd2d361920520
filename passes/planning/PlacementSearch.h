#pragma once
// Exact search for a placement of at most a given peak.

#include "passes/planning/PlacementModel.h"

namespace sluice {

enum class SearchResult { Found, Infeasible, OutOfNodes };

/// Blocks and overlapping pairs up to which the search is worth starting.
constexpr int32_t maxSearchBlocks = 4096;
constexpr int64_t maxSearchPairs = 2'000'000;

struct SearchOutcome {
  SearchResult result = SearchResult::OutOfNodes;
  std::vector<int64_t> offsets; // when found
  int64_t nodes = 0;            // visited
};

/// Depth-first search over canonical placements (every block rests on another one, blocks
/// are placed by rising offset), as in M. D. Moffitt, "MiniMalloc: a lightweight memory
/// allocator for hardware-accelerated machine learning", ASPLOS 2023. Infeasible is a
/// proof.
SearchOutcome searchPlacement(const PlacementModel &model, int64_t capacity,
                              int64_t nodeBudget);

} // namespace sluice
