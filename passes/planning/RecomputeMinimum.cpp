// The structural minimum: budgets below it are ruled out without search.

#include "passes/planning/RecomputeGraph.h"

#include <algorithm>
#include <limits>

namespace sluice {
namespace {

/// By operation: the first backward operation that needs it, opCount if none does.
std::vector<int32_t> firstDependents(const RecomputeGraph &graph) {
  std::vector<int32_t> first(graph.opCount, graph.opCount);
  for (int32_t o = graph.opCount; o-- > 0;) {
    int32_t own = graph.isForward(o) ? first[o] : o;
    for (int32_t v : graph.inputs[o])
      if (int32_t p = graph.producer[v]; p >= 0)
        first[p] = std::min(first[p], own);
  }
  return first;
}

StructuralMinimum mostTouched(const RecomputeGraph &graph) {
  StructuralMinimum most;
  for (int32_t o = 0; o < graph.opCount; ++o) {
    int64_t bytes =
        graph.workspace[o] - graph.mostSharedBytes(o, [](int32_t) { return true; });
    for (int32_t v : graph.inputs[o])
      bytes += graph.size[v];
    for (int32_t v : graph.outputs[o])
      bytes += graph.size[v];
    if (bytes > most.bytes)
      most = {bytes, o, -1};
  }
  return most;
}

/// What single operations touch, and what has to be resident beside it.
StructuralMinimum leastOfOperations(const RecomputeGraph &graph,
                                    const std::vector<int64_t> &bytes) {
  std::vector<int32_t> dependent = firstDependents(graph);
  StructuralMinimum least;
  int64_t forced = 0;
  // Results of operations that run once, have run before the instant, and are read
  // behind.
  std::vector<char> counted(graph.valueCount, 0);
  std::vector<std::vector<int32_t>> release(graph.opCount + 1);
  auto force = [&](int32_t v) {
    int32_t p = graph.producer[v];
    if (counted[v] || !graph.isForwardValue(v) || graph.rerun[p] ||
        dependent[p] >= graph.opCount)
      return;
    counted[v] = 1;
    forced += graph.size[v];
    release[dependent[p]].push_back(v);
  };
  for (int32_t v = 0; v < graph.valueCount; ++v)
    if (graph.liveAtEnd[v])
      force(v);
  for (int32_t o = graph.opCount; o-- > 0;) {
    int64_t shared = 0;
    for (int32_t v : graph.inputs[o])
      shared += counted[v] ? graph.size[v] : 0;
    int64_t here = bytes[o] + (graph.isForward(o) ? 0 : forced - shared);
    if (here > least.bytes)
      least = {here, o, -1};
    for (int32_t v : release[o])
      counted[v] = 0, forced -= graph.size[v];
    if (!graph.isForward(o))
      for (int32_t v : graph.inputs[o])
        if (graph.isForwardValue(v) && dependent[graph.producer[v]] < o)
          force(v);
  }
  return least;
}

/// Bytes of what no schedule can produce again and operations from each backward one on
/// read, at the instant before it.
std::vector<int64_t> bytesBetween(const RecomputeGraph &graph) {
  std::vector<int64_t> bytes(graph.opCount, 0);
  std::vector<char> held(graph.valueCount, 0);
  int64_t level = 0;
  auto hold = [&](int32_t v) {
    if (!held[v] && !graph.isForwardValue(v))
      held[v] = 1, level += graph.size[v];
  };
  for (int32_t v = 0; v < graph.valueCount; ++v)
    if (graph.liveAtEnd[v])
      hold(v);
  for (int32_t o = graph.opCount; o-- > graph.firstBackward;) {
    for (int32_t v : graph.outputs[o])
      if (held[v])
        held[v] = 0, level -= graph.size[v];
    for (int32_t v : graph.inputs[o])
      hold(v);
    bytes[o] = level;
  }
  return bytes;
}

/// For each value the least peak of any schedule that has it when backward operation k
/// runs, for k in turn. Either it stays from the operation before, or it is computed just
/// before k, when its inputs are there too and, beside what that touches, everything that
/// passes the instant. O(backward operations * forward reads).
class LeastPeaks {
public:
  LeastPeaks(const RecomputeGraph &graph, const std::vector<int64_t> &bytes)
      : graph(graph), bytes(bytes), between(bytesBetween(graph)),
        dependent(firstDependents(graph)), peaks(graph.valueCount, 0) {
    for (int32_t o = 0; o < graph.firstBackward; ++o) {
      int64_t needed = touched(o);
      for (int32_t v : graph.inputs[o])
        needed = std::max(needed, peaks[v]);
      for (int32_t v : graph.outputs[o])
        peaks[v] = needed;
    }
  }

  /// From operation k - 1 to k, behind the first backward one.
  void advance(int32_t k) {
    auto reads = graph.inputs[k - 1];
    for (int32_t o = 0; o < graph.firstBackward; ++o) {
      bool mayRun = graph.rerun[o] || dependent[o] >= k;
      int64_t computed =
          mayRun ? touched(o) + between[k] : std::numeric_limits<int64_t>::max();
      for (int32_t v : graph.inputs[o])
        if (!isOptional(o, v))
          computed = std::max(computed, peaks[v]);
        else if (mayRun && !graph.preexisting[v])
          computed -= graph.size[v];
      for (int32_t v : graph.outputs[o]) {
        bool counted = std::binary_search(reads.begin(), reads.end(), v);
        int64_t stays = std::max(peaks[v], bytes[k - 1] + (counted ? 0 : graph.size[v]));
        peaks[v] = std::min(computed, stays);
      }
    }
  }

  int64_t operator[](int32_t value) const { return peaks[value]; }

private:
  /// Preexisting inputs may be among what passes already.
  int64_t touched(int32_t o) const {
    int64_t sum = graph.workspace[o];
    for (int32_t v : graph.inputs[o])
      sum += graph.preexisting[v] ? 0 : graph.size[v];
    for (int32_t v : graph.outputs[o])
      sum += graph.size[v];
    return sum - graph.mostSharedBytes(o, [](int32_t) { return true; });
  }

  bool isOptional(int32_t o, int32_t value) const {
    auto optional = graph.optionalInputs[o];
    return std::binary_search(optional.begin(), optional.end(), value);
  }

  const RecomputeGraph &graph;
  const std::vector<int64_t> &bytes;
  std::vector<int64_t> between;
  std::vector<int32_t> dependent;
  std::vector<int64_t> peaks;
};

} // namespace

StructuralMinimum structuralMinimum(const RecomputeGraph &graph, bool backwardInOrder) {
  if (!backwardInOrder)
    return mostTouched(graph);
  std::vector<int64_t> bytes = unavoidableBytes(graph);
  StructuralMinimum most = leastOfOperations(graph, bytes);
  LeastPeaks peaks(graph, bytes);
  for (int32_t o = graph.firstBackward; o < graph.opCount; ++o) {
    if (o > graph.firstBackward)
      peaks.advance(o);
    for (int32_t v : graph.inputs[o])
      if (graph.isForwardValue(v) && peaks[v] > most.bytes)
        most = {peaks[v], o, v};
  }
  return most;
}

} // namespace sluice
