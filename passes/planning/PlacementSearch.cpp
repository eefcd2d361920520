#include "passes/planning/PlacementSearch.h"

#include "passes/planning/CanonicalSearch.h"

#include <algorithm>

namespace sluice {

SearchOutcome searchPlacement(const PlacementModel &model, int64_t capacity,
                              int64_t nodeBudget) {
  SearchOutcome outcome;
  CanonicalSearch search(model, capacity);
  // The orders take turns under a growing limit, as each may be lucky early.
  for (int64_t limit = 2 * int64_t(model.blocks.size()); outcome.nodes < nodeBudget;
       limit *= 2) {
    for (SearchKey key : {SearchKey::WidthAreaTotal, SearchKey::TotalAreaWidth,
                          SearchKey::TotalWidthArea}) {
      outcome.result = search.run(key, std::min(limit, nodeBudget - outcome.nodes));
      outcome.nodes += search.nodes;
      if (outcome.result == SearchResult::Found)
        outcome.offsets = search.solution;
      if (outcome.result != SearchResult::OutOfNodes)
        return outcome;
    }
  }
  return outcome;
}

} // namespace sluice
