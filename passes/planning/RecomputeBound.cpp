#include "passes/planning/RecomputeBound.h"

#include <algorithm>
#include <cmath>

namespace sluice {

namespace {

/// The backward operation that most wait for: what they all read is resident or runs
/// again.
int32_t boundaryOf(const RecomputeGraph &graph) {
  constexpr int32_t looked = 256;
  int32_t best = graph.firstBackward;
  int64_t most = -1;
  if (graph.backwardInOrder)
    return best;
  for (int32_t o = best; o < std::min(graph.opCount, graph.firstBackward + looked); ++o) {
    std::vector<char> behind = InstantOrder(graph, o).behind;
    int64_t count = std::count(behind.begin(), behind.end(), 1);
    if (count > most)
      most = count, best = o;
  }
  return best;
}

} // namespace

RecomputeBound::RecomputeBound(const RecomputeGraph &graph, int32_t instants)
    : graph(graph), minimum(structuralMinimum(graph, graph.backwardInOrder)) {
  if (graph.firstBackward == graph.opCount)
    return;
  positions.push_back(boundaryOf(graph));
  int32_t backward = graph.opCount - graph.firstBackward;
  std::vector<int32_t> others;
  for (int32_t i = 1; i <= instants / 2; ++i)
    others.push_back(graph.firstBackward +
                     int32_t(int64_t(backward - 1) * i / std::max(1, instants / 2)));
  std::vector<int64_t> bytes = unavoidableBytes(graph);
  std::vector<int32_t> order;
  for (int32_t o = graph.firstBackward + 1; o < graph.opCount; ++o)
    order.push_back(o);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return bytes[a] != bytes[b] ? bytes[a] > bytes[b] : a < b;
  });
  order.resize(std::min<size_t>(order.size(), size_t(instants - instants / 2)));
  others.insert(others.end(), order.begin(), order.end());
  std::sort(others.begin(), others.end());
  others.erase(std::unique(others.begin(), others.end()), others.end());
  for (int32_t o : others)
    if (o != positions.front())
      positions.push_back(o);
}

RecomputeCut &RecomputeBound::cutAt(size_t position) {
  std::unique_ptr<RecomputeCut> &cut = cuts[position];
  if (!cut)
    cut = std::make_unique<RecomputeCut>(graph, positions[position]);
  return *cut;
}

RecomputeCertificate RecomputeBound::tooSmall(int64_t budgetBytes) const {
  if (minimum.value < 0 && !graph.isForward(minimum.op))
    return RecomputeCut(graph, minimum.op).certificate(budgetBytes);
  RecomputeCertificate proof;
  proof.budgetBytes = budgetBytes;
  proof.boundUs = INFINITY;
  proof.infeasible = true;
  proof.position = minimum.op;
  proof.value = minimum.value;
  return proof;
}

double RecomputeBound::timeUs(int64_t budgetBytes) {
  return certificate(budgetBytes).boundUs;
}

RecomputeCertificate RecomputeBound::certificate(int64_t budgetBytes) {
  RecomputeCertificate best;
  best.budgetBytes = budgetBytes;
  best.boundUs = graph.onceUs;
  if (budgetBytes < minimum.bytes)
    return tooSmall(budgetBytes);
  double bestUs = 0;
  for (size_t i = 0; i < positions.size(); ++i) {
    RecomputeCut &cut = cutAt(i);
    int64_t resident = budgetBytes - cut.fixedBytes();
    if (resident < cut.leastBytes())
      return cut.certificate(budgetBytes);
    double us = cut.boundUs(resident);
    if (us <= bestUs)
      continue;
    bestUs = us;
    best = cut.certificate(budgetBytes);
  }
  return best;
}

} // namespace sluice
