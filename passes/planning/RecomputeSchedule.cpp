#include "passes/planning/RecomputeSchedule.h"

#include <algorithm>

namespace sluice {

ScheduleSimulator::ScheduleSimulator(const RecomputeGraph &graph) : graph(graph) {
  available.resize(graph.valueCount);
  alive.resize(graph.valueCount);
  runs.resize(graph.opCount);
}

/// Collects in `pending` the operations that must run so that `value` is there.
void ScheduleSimulator::gather(int32_t value) {
  stack.push_back(value);
  while (!stack.empty()) {
    int32_t v = stack.back();
    stack.pop_back();
    if (available[v])
      continue;
    int32_t op = graph.producer[v];
    pending.push_back(op);
    for (int32_t out : graph.outputs[op])
      available[out] = 1;
    for (int32_t in : graph.inputs[op])
      if (!available[in])
        stack.push_back(in);
  }
}

const std::vector<int32_t> &
ScheduleSimulator::sequenceFor(const std::vector<char> &kept) {
  sequence.clear();
  clones.clear();
  for (int32_t v = 0; v < graph.valueCount; ++v) {
    int32_t op = graph.producer[v];
    available[v] = op < 0 || kept[v] || !graph.rerun[op];
  }
  for (int32_t o = 0; o < graph.firstBackward; ++o)
    sequence.push_back(o);
  for (int32_t o = graph.firstBackward; o < graph.opCount; ++o) {
    pending.clear();
    for (int32_t v : graph.inputs[o])
      gather(v);
    // Program order: what the user wrote peaks no higher than the forward part did.
    std::sort(pending.begin(), pending.end());
    clones.insert(clones.end(), pending.begin(), pending.end());
    sequence.insert(sequence.end(), pending.begin(), pending.end());
    sequence.push_back(o);
  }
  pending.clear();
  for (int32_t v = 0; v < graph.valueCount; ++v)
    if (graph.liveAtEnd[v] && graph.isForwardValue(v))
      gather(v);
  std::sort(pending.begin(), pending.end());
  clones.insert(clones.end(), pending.begin(), pending.end());
  sequence.insert(sequence.end(), pending.begin(), pending.end());
  return sequence;
}

ScheduleCost ScheduleSimulator::simulate(const std::vector<int32_t> &order) {
  std::fill(runs.begin(), runs.end(), 0);
  for (int32_t o : order)
    ++runs[o];
  dead.assign(order.size(), 0);
  // From the end: a value is alive before a run if the run or a later one reads it before
  // it is written again.
  int64_t level = 0;
  for (int32_t v = 0; v < graph.valueCount; ++v) {
    alive[v] = graph.liveAtEnd[v];
    level += alive[v] ? graph.size[v] : 0;
  }
  ScheduleCost cost;
  for (size_t i = order.size(); i-- > 0;) {
    int32_t o = order[i];
    bool read = !graph.rerun[o] || runs[o] == 1;
    for (int32_t v : graph.outputs[o])
      read |= alive[v] != 0;
    if (!read) {
      --runs[o];
      dead[i] = 1;
      continue;
    }
    int64_t unread = 0, written = 0;
    for (int32_t v : graph.outputs[o]) {
      (alive[v] ? written : unread) += graph.size[v];
      alive[v] = 0;
    }
    int64_t during = level + unread + graph.workspace[o];
    during -= graph.sharedBytes(o, [&](int32_t v) { return !alive[v]; });
    level -= written;
    for (int32_t v : graph.inputs[o])
      if (!alive[v]) {
        alive[v] = 1;
        level += graph.size[v];
        during += graph.size[v];
      }
    if (during >= cost.peakBytes) {
      cost.peakBytes = during;
      peakRun = int64_t(i);
    }
  }
  cost.timeUs = graph.onceUs;
  for (int32_t o = 0; o < graph.firstBackward; ++o)
    cost.timeUs += graph.again[o] * double(runs[o] - 1);
  return cost;
}

RecomputeSolution ScheduleSimulator::solutionOf(const std::vector<int32_t> &order) {
  RecomputeSolution solution;
  ScheduleCost cost = simulate(order);
  solution.timeUs = cost.timeUs;
  solution.peakBytes = cost.peakBytes;
  solution.onceUs = graph.onceUs;
  std::vector<char> hasRun(graph.opCount, 0), first(graph.valueCount, 0);
  std::vector<char> kept(graph.valueCount, 0);
  bool behind = false; // the backward part has begun
  for (size_t i = 0; i < order.size(); ++i) {
    if (dead[i])
      continue;
    int32_t o = order[i];
    behind |= !graph.isForward(o);
    if (int64_t(i) == peakRun)
      solution.peakAt = int32_t(solution.schedule.size());
    solution.schedule.push_back({o, hasRun[o] != 0});
    for (int32_t v : graph.inputs[o])
      if (behind && first[v] && graph.isForwardValue(v))
        kept[v] = 1;
    for (int32_t v : graph.outputs[o])
      first[v] = !behind && !hasRun[o];
    hasRun[o] = 1;
  }
  for (int32_t v = 0; v < graph.valueCount; ++v)
    if (kept[v] || (graph.liveAtEnd[v] && first[v] && graph.isForwardValue(v)))
      solution.kept.push_back(v);
  return solution;
}

} // namespace sluice
