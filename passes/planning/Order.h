#pragma once
// Order of the operations of a step: a topological order of low peak memory.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace sluice {

struct OrderProblem {
  struct Value {
    int64_t sizeBytes = 0;    ///< rounded to the alignment of the arena
    bool preexisting = false; ///< a program input: live from the start, has no producer
    bool liveAtEnd = false;   ///< a program output: stays live after the last node
  };
  struct Node {
    std::vector<int32_t> inputs; ///< values read; repeats are allowed
    std::vector<int32_t>
        outputs;                ///< values written; every value has at most one producer
    int64_t workspaceBytes = 0; ///< live during this node only
    std::vector<int32_t>
        after; ///< nodes that must come before, for hazards that are not values
    /// (input, output): the output takes the input's bytes when this node is the input's
    /// last reader; each value in at most one pair. To be exact the output must not be
    /// larger than the input.
    std::vector<std::pair<int32_t, int32_t>> inPlace;
  };
  std::vector<Value> values;
  std::vector<Node> nodes; ///< in program order, which must be topological
};

struct OrderSolution {
  std::string error; ///< empty unless the problem is malformed (a cycle, a bad index)
  std::vector<int32_t> order;   ///< node indices, a topological order
  int64_t peakBytes = 0;        ///< simulated peak of the order
  int64_t programPeakBytes = 0; ///< peak of the order the program was given in
  int64_t lowerBoundBytes = 0;  ///< no order has a lower peak
  std::string method;           ///< which candidate won
};

/// Greedy list scheduling under several priorities, beside the program order; the best is
/// returned. The program order wins ties, so nothing moves without a gain. Deterministic.
OrderSolution orderNodes(const OrderProblem &problem);

/// Peak of `order` in bytes, or -1 with `error` set when it is not a topological order of
/// all nodes. Independent of the scheduler: used by tests and by the verifier.
int64_t simulatePeak(const OrderProblem &problem, const std::vector<int32_t> &order,
                     std::string &error);

} // namespace sluice
