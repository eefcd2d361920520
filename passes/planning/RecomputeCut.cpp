#include "passes/planning/RecomputeCut.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace sluice {
namespace {

constexpr int32_t source = 0, sink = 1;
constexpr double costUnits = double(int64_t(1) << 44); // of all operations together
constexpr int64_t largeCapacity = int64_t(1)
                                  << 46; // more than all costs: never cut first
constexpr int maxCuts = 60;              // per bracket

} // namespace

RecomputeCut::RecomputeCut(const RecomputeGraph &graph, int32_t op, Purpose purpose)
    : graph(graph), instant(op), valueNode(graph.valueCount, -1),
      opNode(graph.opCount, -1) {
  unitUs = std::max(graph.onceUs, 1e-9) / costUnits;
  // An operation that nothing before the instant needs may run behind it for the first
  // time, so it is free there.
  InstantOrder order(graph, instant);
  fixed = unavoidableAt(graph, instant, order);
  ranBefore = std::move(order.before);
  needy = std::move(order.behind);
  if (purpose == Purpose::Plan)
    std::fill(needy.begin() + instant + 1, needy.end(), 1);
  if (purpose == Purpose::Plan)
    for (int32_t o = 0; o < graph.firstBackward; ++o)
      ranBefore[o] |= !graph.rerun[o]; // plans run them in their place
  if (purpose == Purpose::Plan)
    // Put off behind the instant, it would hold the instant's inputs for longer.
    for (int32_t v : graph.inputs[instant])
      for (int32_t o : graph.readers[v])
        ranBefore[o] = 1;
  build(purpose);
  choices.push_back(leastChoice());
  double bytes = 1;
  for (int32_t v : values)
    bytes += double(graph.size[v]);
  setPrice(1e-6 * std::max(graph.onceUs, 1e-9) / bytes);
  Choice richest = solve();
  if (richest.bytes > choices[0].bytes) {
    choices.push_back(std::move(richest));
    adjacent.push_back(0);
  }
}

int32_t RecomputeCut::nodeOfValue(int32_t value) {
  if (valueNode[value] < 0) {
    valueNode[value] = 2 + int32_t(values.size() + ops.size());
    values.push_back(value);
  }
  return valueNode[value];
}

void RecomputeCut::build(Purpose purpose) {
  std::vector<char> resident(graph.valueCount, 0), needed(graph.valueCount, 0);
  for (int32_t v : graph.inputs[instant])
    resident[v] = 1;
  auto need = [&](int32_t v) {
    if (graph.isForwardValue(v) && !resident[v] && !needed[v]) {
      needed[v] = 1;
      nodeOfValue(v);
    }
  };
  for (int32_t o = instant + 1; o < graph.opCount; ++o)
    for (int32_t v : graph.inputs[o])
      if (needy[o])
        need(v);
  for (int32_t v = 0; v < graph.valueCount; ++v)
    if (graph.liveAtEnd[v])
      need(v);
  auto canDoWithout = [&](int32_t o, int32_t v) {
    auto optional = graph.optionalInputs[o];
    return purpose == Purpose::Bound &&
           std::binary_search(optional.begin(), optional.end(), v);
  };
  // Nodes reached from there; values grows while it is walked.
  for (size_t i = 0; i < values.size(); ++i) {
    int32_t o = graph.producer[values[i]];
    if (opNode[o] >= 0)
      continue;
    opNode[o] = 2 + int32_t(values.size() + ops.size());
    ops.push_back(o);
    if (mayRunBehind(o))
      for (int32_t u : graph.inputs[o])
        if (graph.isForwardValue(u) && !resident[u] && !canDoWithout(o, u))
          nodeOfValue(u);
  }
  network = MinCut(2 + int32_t(values.size() + ops.size()));
  for (int32_t v : values) {
    saveArc.push_back(network.addArc(valueNode[v], opNode[graph.producer[v]], 0));
    if (needed[v])
      network.addArc(source, valueNode[v], MinCut::infinite);
  }
  for (int32_t o : ops) {
    costArc.push_back(network.addArc(opNode[o], sink, 0));
    if (mayRunBehind(o))
      for (int32_t u : graph.inputs[o])
        if (valueNode[u] >= 0 && !canDoWithout(o, u))
          inputArcs.push_back(
              {o, u, network.addArc(opNode[o], valueNode[u], MinCut::infinite)});
  }
}

void RecomputeCut::setPrice(double price) {
  for (size_t i = 0; i < values.size(); ++i) {
    double units = price * double(graph.size[values[i]]) / unitUs;
    network.setCapacity(saveArc[i],
                        units < double(largeCapacity) ? int64_t(units) : largeCapacity);
  }
  for (size_t i = 0; i < ops.size(); ++i) {
    int32_t o = ops[i];
    int64_t units = ranBefore[o] ? int64_t(graph.again[o] / unitUs) : 0;
    network.setCapacity(costArc[i], mayRunBehind(o) ? units : MinCut::infinite);
  }
}

int64_t RecomputeCut::bytesOf(int32_t value, const std::vector<char> &side) const {
  bool saved = side[valueNode[value]] && !side[opNode[graph.producer[value]]];
  return saved ? graph.size[value] : 0;
}

RecomputeCut::Choice RecomputeCut::solve() {
  network.solve(source, sink);
  Choice choice;
  choice.sourceSide.resize(2 + values.size() + ops.size());
  for (size_t i = 0; i < choice.sourceSide.size(); ++i)
    choice.sourceSide[i] = network.onSourceSide(int32_t(i));
  for (int32_t v : values)
    choice.bytes += bytesOf(v, choice.sourceSide);
  for (int32_t o : ops)
    if (choice.sourceSide[opNode[o]] && ranBefore[o])
      choice.us += graph.again[o];
  return choice;
}

/// Least bytes whatever the time.
RecomputeCut::Choice RecomputeCut::leastChoice() {
  for (size_t i = 0; i < values.size(); ++i)
    network.setCapacity(saveArc[i], graph.size[values[i]]);
  for (size_t i = 0; i < ops.size(); ++i)
    network.setCapacity(costArc[i], mayRunBehind(ops[i]) ? 0 : MinCut::infinite);
  return solve();
}

RecomputeCut::Bracket RecomputeCut::bracket(int64_t residentBytes) {
  for (int round = 0;; ++round) {
    size_t over =
        std::partition_point(choices.begin(), choices.end(),
                             [&](const Choice &c) { return c.bytes <= residentBytes; }) -
        choices.begin();
    if (over == 0)
      return {nullptr, &choices[0], 0};
    if (over == choices.size())
      return {&choices.back(), nullptr, 0};
    const Choice &lean = choices[over - 1], &rich = choices[over];
    double price = std::max(0.0, lean.us - rich.us) / double(rich.bytes - lean.bytes);
    if (adjacent[over - 1] || round == maxCuts)
      return {&lean, &rich, price};
    setPrice(price);
    Choice next = solve();
    double value = next.us + price * double(next.bytes);
    double line = lean.us + price * double(lean.bytes);
    if (value >= line - 1e-9 * (line + 1e-9) || next.bytes <= lean.bytes ||
        next.bytes >= rich.bytes) {
      // Below the line but not between: `lean` has the least bytes, not the least time.
      if (value < line - 1e-9 * (line + 1e-9) && next.bytes == lean.bytes)
        choices[over - 1] = std::move(next);
      else
        adjacent[over - 1] = 1;
      continue;
    }
    choices.insert(choices.begin() + over, std::move(next));
    adjacent.insert(adjacent.begin() + over, 0);
  }
}

double RecomputeCut::boundUs(int64_t residentBytes) {
  Bracket at = bracket(residentBytes);
  if (!at.lean || !at.rich)
    return 0;
  return std::max(0.0, at.lean->us - at.price * double(residentBytes - at.lean->bytes));
}

RecomputeCertificate RecomputeCut::certificate(int64_t budgetBytes) {
  RecomputeCertificate proof;
  proof.budgetBytes = budgetBytes;
  proof.boundUs = graph.onceUs;
  int64_t resident = budgetBytes - fixed;
  Bracket at = bracket(resident);
  proof.infeasible = !at.lean;
  if (!at.rich || (at.lean && at.price <= 0))
    return proof;
  proof.position = instant;
  proof.unitUs = unitUs;
  proof.price = at.price;
  if (proof.infeasible) {
    proof.boundUs = INFINITY;
    proof.price = proof.unitUs = 1; // one unit of flow is one byte that must be resident
    leastChoice();
  } else {
    setPrice(at.price);
    double flow = double(network.solve(source, sink));
    proof.boundUs += std::max(0.0, flow * unitUs - at.price * double(resident));
  }
  for (size_t i = 0; i < values.size(); ++i)
    if (int64_t flow = network.flow(saveArc[i]))
      proof.saves.push_back({values[i], flow});
  for (const InputArc &arc : inputArcs)
    if (int64_t flow = network.flow(arc.arc))
      proof.reads.push_back({arc.op, arc.value, flow});
  return proof;
}

std::vector<char> RecomputeCut::keptBy(const Choice &choice) const {
  std::vector<char> kept(graph.valueCount, 0);
  for (int32_t v : graph.inputs[instant])
    kept[v] = graph.isForwardValue(v);
  for (int32_t v : values)
    kept[v] =
        choice.sourceSide[valueNode[v]] && !choice.sourceSide[opNode[graph.producer[v]]];
  return kept;
}

} // namespace sluice
