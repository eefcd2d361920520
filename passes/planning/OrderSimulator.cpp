// Independent of OrderGraph: positions and a difference array over time.

#include "passes/planning/Order.h"

#include <algorithm>

namespace sluice {
namespace {

/// Position of each node in the order; empty, with the reason, if it is not a topological
/// order.
std::vector<int64_t> positionsOf(const OrderProblem &problem,
                                 const std::vector<int32_t> &order, std::string &error) {
  std::vector<int64_t> position(problem.nodes.size(), -1);
  if (order.size() != problem.nodes.size()) {
    error = "the order has " + std::to_string(order.size()) + " nodes, expected " +
            std::to_string(problem.nodes.size());
    return {};
  }
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] < 0 || size_t(order[i]) >= order.size() || position[order[i]] >= 0) {
      error = "place " + std::to_string(i) + " of the order names node " +
              std::to_string(order[i]) + ", which does not exist or came before";
      return {};
    }
    position[order[i]] = int64_t(i);
  }
  std::vector<int32_t> producer(problem.values.size(), -1);
  for (size_t n = 0; n < problem.nodes.size(); ++n)
    for (int32_t v : problem.nodes[n].outputs)
      producer[v] = int32_t(n);
  for (size_t n = 0; n < problem.nodes.size(); ++n) {
    std::vector<int32_t> before = problem.nodes[n].after;
    for (int32_t v : problem.nodes[n].inputs)
      if (producer[v] >= 0)
        before.push_back(producer[v]);
    for (int32_t other : before)
      if (position[other] >= position[n]) {
        error = "node " + std::to_string(n) + " runs before node " +
                std::to_string(other) + ", which it needs";
        return {};
      }
  }
  return position;
}

} // namespace

int64_t simulatePeak(const OrderProblem &problem, const std::vector<int32_t> &order,
                     std::string &error) {
  error.clear();
  std::vector<int64_t> position = positionsOf(problem, order, error);
  if (!error.empty())
    return -1;

  int64_t steps = int64_t(order.size()), atStart = 0, atEnd = 0;
  std::vector<int64_t> begin(problem.values.size(), INT64_MAX);
  std::vector<int64_t> last(problem.values.size(), -1);
  for (size_t n = 0; n < problem.nodes.size(); ++n)
    for (const auto *list : {&problem.nodes[n].inputs, &problem.nodes[n].outputs})
      for (int32_t v : *list) {
        begin[v] = std::min(begin[v], position[n]);
        last[v] = std::max(last[v], position[n]);
      }

  std::vector<int64_t> change(size_t(steps) + 2, 0);
  for (size_t v = 0; v < problem.values.size(); ++v) {
    const auto &value = problem.values[v];
    atStart += value.preexisting ? value.sizeBytes : 0;
    atEnd += value.liveAtEnd ? value.sizeBytes : 0;
    int64_t from = value.preexisting ? 0 : begin[v];
    int64_t to = value.liveAtEnd ? steps - 1 : last[v];
    if (from == INT64_MAX || to < from)
      continue;
    change[size_t(from)] += value.sizeBytes;
    change[size_t(to) + 1] -= value.sizeBytes;
  }
  int64_t peak = std::max(atStart, atEnd), level = 0;
  for (int64_t i = 0; i < steps; ++i) {
    level += change[size_t(i)];
    const auto &node = problem.nodes[order[size_t(i)]];
    int64_t here = level + node.workspaceBytes;
    for (auto [in, out] : node.inPlace)
      if (last[in] == i && !problem.values[in].liveAtEnd)
        here -= std::min(problem.values[in].sizeBytes, problem.values[out].sizeBytes);
    peak = std::max(peak, here);
  }
  return peak;
}

} // namespace sluice
