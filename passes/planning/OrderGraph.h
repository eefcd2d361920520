#pragma once
// The order problem in a form that is symmetric in time: a value is live from the first
// to the last of the nodes that touch it, so that the same schedulers run forwards and
// backwards.

#include "passes/planning/Order.h"

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

struct OrderGraph {
  struct Value {
    int64_t size = 0;
    bool fromStart = false, toEnd = false; // live before the first, after the last touch
    std::vector<int32_t> touchedBy;        // distinct nodes
  };
  struct Node {
    std::vector<int32_t> values;                      // touched, distinct
    std::vector<int32_t> predecessors;                // distinct
    std::vector<int32_t> successors;                  // distinct
    std::vector<std::pair<int32_t, int32_t>> inPlace; // (dies here, born here)
    int64_t workspace = 0;
  };
  std::vector<Value> values;
  std::vector<Node> nodes;

  /// Empty `error` when well formed.
  static OrderGraph build(const OrderProblem &problem, std::string &error);
  OrderGraph reversed() const;

  /// Bytes no order can do without: what is live at the start, at the end, and at each
  /// node alone.
  int64_t lowerBound() const;
  /// Peak of a topological order.
  int64_t peak(const std::vector<int32_t> &order) const;
};

/// Progress of a schedule: which values are live, and what each next node would change.
class OrderState {
public:
  explicit OrderState(const OrderGraph &graph);

  struct Effect {
    int64_t hill = 0; ///< bytes above the present level while the node runs
    int64_t net = 0;  ///< change of the level after it
  };
  Effect effect(int32_t node) const;
  /// Runs a node; appends the nodes that became ready, and those whose effect may have
  /// changed.
  void run(int32_t node, std::vector<int32_t> &ready, std::vector<int32_t> &changed);
  /// Takes back the last run, which must have been this node.
  void undo(int32_t node);

  bool isReady(int32_t node) const { return !done[node] && waitingFor[node] == 0; }
  int64_t level() const { return liveBytes; }

private:
  bool bornBy(int32_t value) const {
    return touches[value] == 0 && !graph.values[value].fromStart;
  }
  bool diesBy(int32_t value) const {
    const auto &v = graph.values[value];
    return touches[value] + 1 == int32_t(v.touchedBy.size()) && !v.toEnd;
  }

  const OrderGraph &graph;
  std::vector<int32_t> touches;    // of values: nodes run that touch it
  std::vector<int32_t> waitingFor; // of nodes: predecessors not run
  std::vector<char> done;          // of nodes
  int64_t liveBytes = 0;
};

} // namespace sluice
