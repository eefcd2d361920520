// The policies users know: fixed choices of what is kept, without regard to a budget.

#include "passes/planning/RecomputeSchedule.h"

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

/// Blocks in program order: for each forward operation its index from 0, rising.
std::vector<int32_t> blocksOf(const RecomputeProblem &problem,
                              const RecomputeGraph &graph) {
  std::vector<int32_t> blocks(graph.firstBackward, 0);
  bool named = false;
  for (int32_t o = 0; o < graph.firstBackward; ++o)
    named |= problem.ops[o].block >= 0;
  if (named) {
    // What lies outside belongs to the block before it.
    int32_t index = -1, label = -1;
    for (int32_t o = 0; o < graph.firstBackward; ++o) {
      int32_t own = problem.ops[o].block;
      if (index < 0 || (own >= 0 && own != label && label >= 0))
        ++index;
      label = own >= 0 ? own : label;
      blocks[o] = index;
    }
    return blocks;
  }
  std::vector<int32_t> change(graph.firstBackward + 1, 0);
  for (int32_t v = 0; v < graph.valueCount; ++v) {
    int32_t last = -1;
    for (int32_t o : graph.readers[v])
      last = graph.isForward(o) ? o : last;
    if (graph.isForwardValue(v) && last > graph.producer[v]) {
      ++change[graph.producer[v]];
      --change[last];
    }
  }
  for (int32_t o = 0, live = 0, index = 0; o < graph.firstBackward; ++o) {
    blocks[o] = index;
    live += change[o];
    index += live == 1;
  }
  return blocks;
}

/// Kept: what crosses the border between two groups of blocks.
std::vector<char> keepBorders(const RecomputeGraph &graph,
                              const std::vector<int32_t> &blocks, int32_t every) {
  std::vector<char> kept(graph.valueCount, 0);
  for (int32_t v = 0; v < graph.valueCount; ++v) {
    if (!graph.isForwardValue(v))
      continue;
    int32_t group = blocks[graph.producer[v]] / every;
    for (int32_t o : graph.readers[v])
      if (graph.isForward(o) && blocks[o] / every != group)
        kept[v] = 1;
  }
  return kept;
}

/// A path may not leave a region and come back: its clone would have to wait for itself.
std::string checkConvex(const RecomputeGraph &graph, const std::vector<int32_t> &region,
                        const std::vector<char> &inside, size_t index) {
  std::vector<char> leftFrom(graph.valueCount, 0);
  int32_t first = *std::min_element(region.begin(), region.end());
  int32_t last = *std::max_element(region.begin(), region.end());
  for (int32_t o = first; o <= last; ++o) {
    bool reached = false;
    for (int32_t v : graph.inputs[o])
      reached |= inside[o] ? leftFrom[v] != 0
                           : leftFrom[v] != 0 || (graph.producer[v] >= 0 &&
                                                  inside[graph.producer[v]] != 0);
    if (reached && inside[o])
      return "region " + std::to_string(index) +
             " is not convex: a path leaves it and comes back at operation " +
             std::to_string(o) + "; add the operations between";
    for (int32_t v : graph.outputs[o])
      leftFrom[v] = reached;
  }
  return {};
}

std::string keepOutsideRegions(const RecomputeGraph &graph, const RecomputePolicy &policy,
                               std::vector<char> &kept) {
  kept.assign(graph.valueCount, 1);
  std::vector<char> taken(graph.opCount, 0);
  for (size_t r = 0; r < policy.regions.size(); ++r) {
    const std::vector<int32_t> &region = policy.regions[r];
    std::vector<char> inside(graph.opCount, 0);
    for (int32_t o : region) {
      if (o < 0 || o >= graph.firstBackward)
        return "region " + std::to_string(r) + " has operation " + std::to_string(o) +
               ", which is not one of the forward part";
      if (taken[o] && !inside[o])
        return "operation " + std::to_string(o) + " lies in two regions";
      taken[o] = inside[o] = 1;
    }
    if (region.empty())
      continue;
    if (std::string wrong = checkConvex(graph, region, inside, r); !wrong.empty())
      return wrong;
    for (int32_t o : region)
      for (int32_t v : graph.outputs[o]) {
        // Results of the region are kept: others read them.
        bool interior = true;
        for (int32_t reader : graph.readers[v])
          interior &= !graph.isForward(reader) || inside[reader];
        kept[v] = !interior || graph.liveAtEnd[v];
      }
  }
  return {};
}

} // namespace

RecomputeSolution planByPolicy(const RecomputeProblem &problem,
                               const RecomputePolicy &policy) {
  RecomputeSolution failed;
  RecomputeGraph graph = RecomputeGraph::build(problem, failed.error);
  if (!failed.error.empty())
    return failed;
  std::vector<char> kept(graph.valueCount, 1);
  const char *method = "none";
  if (policy.kind == RecomputeKind::Every || policy.kind == RecomputeKind::Sqrt) {
    std::vector<int32_t> blocks = blocksOf(problem, graph);
    double count = blocks.empty() ? 1 : blocks.back() + 1;
    bool fixed = policy.kind == RecomputeKind::Every;
    int32_t every = fixed ? policy.every : int32_t(std::ceil(std::sqrt(count)));
    if (every < 1) {
      failed.error = "'every' is " + std::to_string(every) + ", expected at least 1";
      return failed;
    }
    kept = keepBorders(graph, blocks, every);
    method = fixed ? "every" : "sqrt";
  } else if (policy.kind == RecomputeKind::Regions) {
    failed.error = keepOutsideRegions(graph, policy, kept);
    if (!failed.error.empty())
      return failed;
    method = "regions";
  }
  ScheduleSimulator simulator(graph);
  RecomputeSolution solution = simulator.solutionOf(simulator.sequenceFor(kept));
  solution.method = method;
  return solution;
}

std::vector<int32_t> liveAtPeak(const RecomputeProblem &problem,
                                const RecomputeSolution &solution) {
  std::vector<int32_t> live;
  if (solution.peakAt < 0)
    return live;
  // Live: written up to the peak (or there from the start), and read at or behind it
  // before it is written again.
  const auto &schedule = solution.schedule;
  std::vector<char> wanted(problem.values.size(), 0);
  for (size_t v = 0; v < wanted.size(); ++v)
    wanted[v] = problem.values[v].liveAtEnd;
  for (size_t i = schedule.size(); i-- > size_t(solution.peakAt);) {
    bool peak = i == size_t(solution.peakAt);
    for (int32_t v : problem.ops[schedule[i].op].outputs)
      wanted[v] = peak;
    for (int32_t v : problem.ops[schedule[i].op].inputs)
      wanted[v] = 1;
  }
  for (size_t v = 0; v < wanted.size(); ++v)
    if (wanted[v] && problem.values[v].sizeBytes > 0)
      live.push_back(int32_t(v));
  std::sort(live.begin(), live.end(), [&](int32_t a, int32_t b) {
    int64_t left = problem.values[a].sizeBytes, right = problem.values[b].sizeBytes;
    return left != right ? left > right : a < b;
  });
  return live;
}

} // namespace sluice
