#include "passes/planning/OrderGraph.h"

#include <algorithm>

namespace sluice {
namespace {

void sortUnique(std::vector<int32_t> &list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

std::string nodeName(size_t node) { return "node " + std::to_string(node); }

std::string checkInPlace(const OrderProblem::Node &node) {
  std::vector<int32_t> used;
  for (auto [in, out] : node.inPlace) {
    if (std::count(node.inputs.begin(), node.inputs.end(), in) == 0 ||
        std::count(node.outputs.begin(), node.outputs.end(), out) == 0)
      return " has an in-place pair that is not of its inputs and outputs";
    used.insert(used.end(), {in, out});
  }
  size_t count = used.size();
  sortUnique(used);
  return used.size() == count ? "" : " has a value in more than one in-place pair";
}

std::string checkIndices(const OrderProblem &problem) {
  auto valid = [&](int32_t v) { return v >= 0 && size_t(v) < problem.values.size(); };
  for (size_t v = 0; v < problem.values.size(); ++v)
    if (problem.values[v].sizeBytes < 0)
      return "value " + std::to_string(v) + " has a negative size";
  for (size_t n = 0; n < problem.nodes.size(); ++n) {
    const auto &node = problem.nodes[n];
    for (const auto *list : {&node.inputs, &node.outputs})
      for (int32_t v : *list)
        if (!valid(v))
          return nodeName(n) + " names the value " + std::to_string(v) + " of " +
                 std::to_string(problem.values.size());
    std::string wrong = checkInPlace(node);
    if (!wrong.empty())
      return nodeName(n) + wrong;
    for (int32_t before : node.after)
      if (before < 0 || size_t(before) >= n)
        return nodeName(n) + " must come after node " + std::to_string(before) +
               ", which is not before it in program order";
    if (node.workspaceBytes < 0)
      return nodeName(n) + " has a negative workspace";
  }
  return {};
}

} // namespace

OrderGraph OrderGraph::build(const OrderProblem &problem, std::string &error) {
  OrderGraph graph;
  error = checkIndices(problem);
  if (!error.empty())
    return graph;
  graph.values.resize(problem.values.size());
  graph.nodes.resize(problem.nodes.size());
  std::vector<int32_t> producer(problem.values.size(), -1);
  for (size_t v = 0; v < problem.values.size(); ++v) {
    graph.values[v].size = problem.values[v].sizeBytes;
    graph.values[v].fromStart = problem.values[v].preexisting;
    graph.values[v].toEnd = problem.values[v].liveAtEnd;
  }
  for (size_t n = 0; n < problem.nodes.size(); ++n) {
    const auto &source = problem.nodes[n];
    auto &node = graph.nodes[n];
    node.predecessors = source.after;
    for (int32_t v : source.inputs) {
      if (producer[v] < 0 && !problem.values[v].preexisting) {
        error = nodeName(n) + " reads value " + std::to_string(v) +
                ", which nothing before it in program order produces";
        return graph;
      }
      if (producer[v] >= 0)
        node.predecessors.push_back(producer[v]);
    }
    for (int32_t v : source.outputs) {
      if (producer[v] >= 0 || problem.values[v].preexisting) {
        error = nodeName(n) + " produces value " + std::to_string(v) +
                ", which exists already";
        return graph;
      }
      producer[v] = int32_t(n);
    }
    node.values = source.inputs;
    node.values.insert(node.values.end(), source.outputs.begin(), source.outputs.end());
    sortUnique(node.values);
    sortUnique(node.predecessors);
    node.inPlace = source.inPlace;
    node.workspace = source.workspaceBytes;
    for (int32_t v : node.values)
      graph.values[v].touchedBy.push_back(int32_t(n));
    for (int32_t p : node.predecessors)
      graph.nodes[p].successors.push_back(int32_t(n));
  }
  return graph;
}

OrderGraph OrderGraph::reversed() const {
  OrderGraph mirror = *this;
  for (Value &value : mirror.values)
    std::swap(value.fromStart, value.toEnd);
  for (Node &node : mirror.nodes) {
    std::swap(node.predecessors, node.successors);
    for (auto &[dies, born] : node.inPlace)
      std::swap(dies, born);
  }
  return mirror;
}

int64_t OrderGraph::lowerBound() const {
  int64_t atStart = 0, atEnd = 0, through = 0, bound = 0;
  for (const Value &value : values) {
    atStart += value.fromStart ? value.size : 0;
    atEnd += value.toEnd ? value.size : 0;
    through += value.fromStart && value.toEnd ? value.size : 0;
  }
  for (const Node &node : nodes) {
    int64_t bytes = through + node.workspace;
    for (int32_t v : node.values)
      if (!(values[v].fromStart && values[v].toEnd))
        bytes += values[v].size;
    for (auto [dies, born] : node.inPlace)
      bytes -= std::min(values[dies].size, values[born].size);
    bound = std::max(bound, bytes);
  }
  return std::max({bound, atStart, atEnd});
}

int64_t OrderGraph::peak(const std::vector<int32_t> &order) const {
  OrderState state(*this);
  std::vector<int32_t> ignored;
  int64_t atStart = 0, atEnd = 0;
  for (const Value &value : values) {
    atStart += value.fromStart ? value.size : 0;
    atEnd += value.toEnd ? value.size : 0;
  }
  int64_t peak = std::max(atStart, atEnd);
  for (int32_t node : order) {
    peak = std::max(peak, state.level() + state.effect(node).hill);
    ignored.clear();
    state.run(node, ignored, ignored);
  }
  return peak;
}

OrderState::OrderState(const OrderGraph &graph)
    : graph(graph), touches(graph.values.size(), 0), waitingFor(graph.nodes.size(), 0),
      done(graph.nodes.size(), 0) {
  for (const auto &value : graph.values)
    liveBytes += value.fromStart ? value.size : 0;
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    waitingFor[n] = int32_t(graph.nodes[n].predecessors.size());
  // An input that nothing reads is gone once the program runs; it counts at the start
  // alone, which the lower bound knows. Keeping it in the level would be wrong from the
  // first node on.
  for (const auto &value : graph.values)
    if (value.fromStart && !value.toEnd && value.touchedBy.empty())
      liveBytes -= value.size;
}

OrderState::Effect OrderState::effect(int32_t index) const {
  const auto &node = graph.nodes[index];
  Effect effect;
  effect.hill = node.workspace;
  for (int32_t v : node.values) {
    if (bornBy(v)) {
      effect.hill += graph.values[v].size;
      effect.net += graph.values[v].size;
    }
    if (diesBy(v))
      effect.net -= graph.values[v].size;
  }
  for (auto [dies, born] : node.inPlace)
    if (diesBy(dies) && bornBy(born))
      effect.hill -= std::min(graph.values[dies].size, graph.values[born].size);
  return effect;
}

void OrderState::run(int32_t index, std::vector<int32_t> &ready,
                     std::vector<int32_t> &changed) {
  const auto &node = graph.nodes[index];
  liveBytes += effect(index).net;
  done[index] = 1;
  for (int32_t v : node.values) {
    const auto &value = graph.values[v];
    bool first = touches[v]++ == 0;
    // The last one to touch it will free it; after the first one it costs the others
    // nothing.
    if (first || touches[v] + 1 == int32_t(value.touchedBy.size()))
      for (int32_t other : value.touchedBy)
        if (isReady(other))
          changed.push_back(other);
  }
  for (int32_t successor : node.successors)
    if (--waitingFor[successor] == 0)
      ready.push_back(successor);
}

void OrderState::undo(int32_t index) {
  const auto &node = graph.nodes[index];
  for (int32_t successor : node.successors)
    ++waitingFor[successor];
  for (int32_t v : node.values)
    --touches[v];
  done[index] = 0;
  liveBytes -= effect(index).net;
}

} // namespace sluice
