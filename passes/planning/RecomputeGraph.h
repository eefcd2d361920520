#pragma once
// A RecomputeProblem in flat arrays, checked once.

#include "passes/planning/Recompute.h"

#include <algorithm>
#include <span>

namespace sluice {

/// Lists of indices, one per row, without repeats within a row.
class IndexRows {
public:
  void addRow(const std::vector<int32_t> &row);
  std::span<const int32_t> operator[](int32_t row) const {
    return {items.data() + begins[row], items.data() + begins[row + 1]};
  }

private:
  std::vector<int32_t> begins{0}, items;
};

struct RecomputeGraph {
  int32_t opCount = 0, valueCount = 0;
  int32_t firstBackward = 0;       ///< operations before it are the forward part
  IndexRows inputs, outputs;       ///< by operation
  IndexRows readers;               ///< by value, ascending
  std::vector<double> cost, again; ///< of the first run and of another one
  /// Pairs of input and output that may share bytes, by operation.
  std::vector<std::vector<std::pair<int32_t, int32_t>>> inPlace;
  IndexRows optionalInputs; ///< by operation
  bool backwardInOrder = true;
  std::vector<int64_t> workspace, size; ///< size by value, rounded to the alignment
  std::vector<int32_t> producer;        ///< by value, -1 for preexisting ones
  std::vector<char> preexisting, liveAtEnd;
  std::vector<char> rerun; ///< by operation: may run again
  double onceUs = 0;

  /// Sets `error` when the problem is malformed.
  static RecomputeGraph build(const RecomputeProblem &problem, std::string &error);

  bool isForward(int32_t op) const { return op < firstBackward; }
  /// Bytes that the operation saves by writing over inputs of which `dies` holds.
  template <typename Dies> int64_t sharedBytes(int32_t op, Dies dies) const {
    int64_t bytes = 0;
    const auto &pairs = inPlace[op];
    std::vector<char> taken(pairs.size(), 0);
    for (size_t i = 0; i < pairs.size(); ++i) {
      taken[i] = dies(pairs[i].first);
      for (size_t k = 0; k < i && taken[i]; ++k)
        taken[i] = !taken[k] || (pairs[k].first != pairs[i].first &&
                                 pairs[k].second != pairs[i].second);
      if (taken[i])
        bytes += std::min(size[pairs[i].first], size[pairs[i].second]);
    }
    return bytes;
  }
  /// At most: whichever inputs `mayDie` says may be written over.
  template <typename MayDie> int64_t mostSharedBytes(int32_t op, MayDie mayDie) const {
    int64_t bytes = 0;
    for (int32_t v : outputs[op]) {
      int64_t most = 0;
      for (auto [in, out] : inPlace[op])
        if (out == v && mayDie(in))
          most = std::max(most, std::min(size[in], size[out]));
      bytes += most;
    }
    return bytes;
  }
  bool isForwardValue(int32_t value) const {
    return producer[value] >= 0 && producer[value] < firstBackward;
  }
  /// Read by the backward part, or an output of the step.
  bool neededAfterForward(int32_t value) const {
    return liveAtEnd[value] ||
           (!readers[value].empty() && readers[value].back() >= firstBackward);
  }
};

/// Bytes that every schedule holds while `op` runs: what it touches, and what operations
/// behind it read but no schedule can produce again. For a backward operation these are
/// results of backward operations and preexisting values; kept forward values come on
/// top.
std::vector<int64_t> unavoidableBytes(const RecomputeGraph &graph);

/// What every schedule has run before a backward operation, and what only behind it.
struct InstantOrder {
  std::vector<char> before, behind; ///< by operation
  InstantOrder(const RecomputeGraph &graph, int32_t op);
};
/// Bytes that every schedule holds while the backward operation `op` runs, kept forward
/// values aside. With backward operations in order the same as above.
int64_t unavoidableAt(const RecomputeGraph &graph, int32_t op, const InstantOrder &order);

/// A budget below which no schedule exists, and why: what `op` touches does not fit; or,
/// with a value, each way to have that value when `op` reads it passes an instant at
/// which more is live. The second holds where backward operations run in order.
struct StructuralMinimum {
  int64_t bytes = 0;
  int32_t op = -1, value = -1;
};
StructuralMinimum structuralMinimum(const RecomputeGraph &graph, bool backwardInOrder);

} // namespace sluice
