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

/// The value was computed last in front of some backward operation up to its reader, and
/// is resident from there: the least over these instants of the most that is live.
class LastComputation {
public:
  LastComputation(const RecomputeGraph &graph, const std::vector<int64_t> &bytes)
      : graph(graph), bytes(bytes), between(bytesBetween(graph)) {}

  /// Stops when the result cannot be above `floor`.
  int64_t least(int32_t reader, int32_t value, int64_t floor) const {
    int32_t o = graph.producer[value];
    int64_t touched = graph.workspace[o];
    for (int32_t v : graph.inputs[o])
      touched += graph.preexisting[v] ? 0 : graph.size[v];
    for (int32_t v : graph.outputs[o])
      touched += graph.size[v];
    int64_t best = std::numeric_limits<int64_t>::max(), kept = bytes[reader];
    for (int32_t g = reader; kept < best && best > floor; --g) {
      bool inForward = g == graph.firstBackward;
      best = std::min(best, std::max(kept, touched + (inForward ? 0 : between[g])));
      if (inForward)
        break;
      auto reads = graph.inputs[g - 1];
      bool counted = std::binary_search(reads.begin(), reads.end(), value);
      kept = std::max(kept, bytes[g - 1] + (counted ? 0 : graph.size[value]));
    }
    return best;
  }

private:
  const RecomputeGraph &graph;
  const std::vector<int64_t> &bytes;
  std::vector<int64_t> between;
};

} // namespace

StructuralMinimum structuralMinimum(const RecomputeGraph &graph) {
  std::vector<int64_t> bytes = unavoidableBytes(graph);
  StructuralMinimum most = leastOfOperations(graph, bytes);
  LastComputation computation(graph, bytes);
  for (int32_t o = graph.firstBackward; o < graph.opCount; ++o)
    for (int32_t v : graph.inputs[o])
      if (graph.isForwardValue(v))
        if (int64_t least = computation.least(o, v, most.bytes); least > most.bytes)
          most = {least, o, v};
  return most;
}

} // namespace sluice
