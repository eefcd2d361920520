#pragma once
// Static memory placement (dynamic storage allocation): gives every buffer of known size
// and live range an offset in one arena so that buffers live at the same time do not
// overlap, with the lowest peak we can find.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sluice {

struct PlacementProblem {
  /// A buffer, or a whole class of aliases (views, in-place results), which must be
  /// merged into one before.
  struct Buffer {
    int64_t begin = 0; ///< first instant it is live
    int64_t end = 0;   ///< first instant it is no longer live (exclusive)
    int64_t sizeBytes = 0;
    int64_t alignBytes =
        64; ///< a power of two; the size is rounded up to it before solving
    std::optional<int64_t> fixedOffset = std::nullopt;
  };
  std::vector<Buffer> buffers;
  /// Asks for any solution of at most this peak. Without it the peak is made as low as
  /// possible.
  std::optional<int64_t> capacityBytes = std::nullopt;
  /// Whether the peak is at most so many bytes is all that is asked: the answer is that
  /// of the problem without it, the peak may be higher where that changes no answer.
  std::optional<int64_t> enoughBytes = std::nullopt;
  /// Limit of the exact search in visited nodes: never in seconds, so that the result is
  /// reproducible.
  int64_t nodeBudget = 200'000;
};

struct PlacementSolution {
  std::string error; ///< empty unless the problem itself is malformed
  std::vector<int64_t>
      offsets;           ///< one per buffer; 0 for those without bytes or without life
  int64_t peakBytes = 0; ///< max(offset + rounded size)
  int64_t lowerBoundBytes =
      0; ///< max over time of the rounded sizes live: no placement is below it
  bool optimal = false; ///< proved: peak equals the bound, or the search was exhausted
  bool fits = true;     ///< peak <= capacity, when one was given
  std::string method;   ///< which heuristic or search gave the answer, for the report
  int64_t nodes = 0;    ///< visited by the exact search

  /// Relative distance of the peak from the lower bound; 0 is proved optimal.
  double gap() const {
    return lowerBoundBytes > 0 ? double(peakBytes) / double(lowerBoundBytes) - 1.0 : 0.0;
  }
};

/// Portfolio of greedy placements; stops as soon as the peak meets the lower bound (or
/// the capacity). Otherwise branch and bound over canonical solutions within the node
/// budget. Deterministic.
PlacementSolution placeBuffers(const PlacementProblem &problem);

} // namespace sluice
