#pragma once
// The options of an item that a Lagrangian relaxation can choose.

#include "passes/planning/FormatAssignment.h"

namespace sluice {

/// Indices of the options that none beats in bytes and increase; bytes rise, increases
/// fall. Of equals the one with less time.
std::vector<int32_t> undominated(const std::vector<FormatOption> &options);

/// Those of them on the lower convex hull.
std::vector<int32_t> convexHull(const std::vector<FormatOption> &options);

/// One item takes fewer bytes, for a rise of the increase.
struct FormatMove {
  double slope = 0; ///< increase for each byte saved
  int32_t item = 0, from = 0, to = 0;
};

/// All moves along the hulls, cheapest first: in this order each item's come one after
/// the other.
std::vector<FormatMove> movesOf(const FormatProblem &problem);

/// The choice with the least increase.
std::vector<int32_t> widestChoice(const FormatProblem &problem);

} // namespace sluice
