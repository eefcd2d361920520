#include "passes/planning/RecomputePlanner.h"

#include <algorithm>

namespace sluice {
namespace {

constexpr int bisections = 14;
constexpr int polishSimulations = 160;

} // namespace

bool ParetoPlans::wouldTake(const ScheduleCost &cost) const {
  const Plan *best = fastestWithin(cost.peakBytes);
  return !best || cost.timeUs < best->cost.timeUs;
}

const ParetoPlans::Plan *ParetoPlans::fastestWithin(int64_t bytes) const {
  auto behind = plans.upper_bound(bytes);
  return behind == plans.begin() ? nullptr : &std::prev(behind)->second;
}

void ParetoPlans::add(Plan plan) {
  if (!wouldTake(plan.cost))
    return;
  auto at = plans.lower_bound(plan.cost.peakBytes);
  while (at != plans.end() && at->second.cost.timeUs >= plan.cost.timeUs)
    at = plans.erase(at);
  int64_t bytes = plan.cost.peakBytes;
  plans.emplace(bytes, std::move(plan));
}

RecomputePlanner::RecomputePlanner(const RecomputeGraph &graph, RecomputeCut &boundary,
                                   ParetoPlans &plans)
    : graph(graph), boundary(boundary), plans(plans), simulator(graph) {}

ScheduleCost RecomputePlanner::tryKept(const std::vector<char> &kept,
                                       const char *method) {
  ScheduleCost cost = simulator.simulateKept(kept);
  if (plans.wouldTake(cost))
    plans.add({cost, std::vector<bool>(kept.begin(), kept.end()), {}, method});
  return cost;
}

void RecomputePlanner::keepEverything() {
  tryKept(std::vector<char>(graph.valueCount, 1), "keep everything");
}

/// The bytes that the cut may give to residents, by bisection: what else is live at the
/// true peak is known only from the simulation.
std::vector<char> RecomputePlanner::bisect(int64_t targetBytes, bool lateFirst) {
  int64_t least = boundary.leastBytes(), low = least;
  int64_t high = std::max(least, targetBytes - boundary.fixedBytes());
  int64_t resident = high;
  std::vector<char> best;
  double bestUs = 0;
  for (int i = 0; i < bisections; ++i) {
    RecomputeCut::Bracket at = boundary.bracket(resident);
    if (!at.lean)
      break;
    std::vector<char> kept =
        at.rich ? boundary.mix(at, resident, lateFirst) : boundary.keptBy(*at.lean);
    ScheduleCost cost = tryKept(kept, "cut");
    if (cost.peakBytes <= targetBytes) {
      if (best.empty() || cost.timeUs < bestUs) {
        best = std::move(kept);
        bestUs = cost.timeUs;
      }
      low = resident;
    } else
      high = resident - 1;
    if (low >= high)
      break;
    // The first step down skips what the simulation found too much.
    int64_t middle = low + (high - low + 1) / 2;
    resident =
        i == 0
            ? std::max(least, std::min(high, resident - (cost.peakBytes - targetBytes)))
            : middle;
    if (i == 0 && cost.peakBytes <= targetBytes)
      break;
  }
  return best;
}

/// Microseconds that need not run again if `value` were kept: its operation, and those
/// whose results nothing else reads behind the forward part.
double RecomputePlanner::worthOf(int32_t value) {
  double us = 0;
  stack.assign(1, value);
  undo.clear();
  while (!stack.empty()) {
    int32_t o = graph.producer[stack.back()];
    stack.pop_back();
    us += graph.again[o];
    for (int32_t u : graph.inputs[o]) {
      int32_t p = graph.producer[u];
      if (p < 0 || !again[p])
        continue;
      undo.push_back(p);
      if (--reads[p] == 0)
        stack.push_back(u);
    }
  }
  for (int32_t p : undo)
    ++reads[p];
  return us;
}

/// Values whose operation runs again, those first that save most time per byte; of equal
/// ones the latest, whose memory is free again soonest.
std::vector<int32_t> RecomputePlanner::saveCandidates(const std::vector<char> &kept) {
  simulator.sequenceFor(kept);
  again.assign(graph.opCount, 0);
  reads.assign(graph.opCount, 0);
  for (int32_t o : simulator.recomputed())
    again[o] = 1;
  for (int32_t o = 0; o < graph.opCount; ++o)
    if (again[o] || !graph.isForward(o))
      for (int32_t v : graph.inputs[o])
        if (graph.producer[v] >= 0 && !kept[v])
          ++reads[graph.producer[v]];
  std::vector<std::pair<double, int32_t>> worth; // less is better
  for (int32_t o : simulator.recomputed())
    for (int32_t v : graph.outputs[o])
      if (!kept[v] && !graph.readers[v].empty())
        worth.push_back({-worthOf(v) / double(std::max<int64_t>(graph.size[v], 1)), -v});
  std::sort(worth.begin(), worth.end());
  std::vector<int32_t> candidates;
  for (auto [perByte, negated] : worth)
    candidates.push_back(-negated);
  return candidates;
}

/// Keeps further values in order of worth while the simulated peak allows: as many at
/// once as fit, doubling and halving.
void RecomputePlanner::polish(std::vector<char> kept, int64_t targetBytes) {
  std::vector<int32_t> candidates = saveCandidates(kept);
  double us = simulator.simulateKept(kept).timeUs;
  size_t step = 1;
  int left = polishSimulations;
  for (size_t i = 0; i < candidates.size() && left > 0; --left) {
    size_t count = std::min(step, candidates.size() - i);
    for (size_t k = 0; k < count; ++k)
      kept[candidates[i + k]] = 1;
    ScheduleCost cost = tryKept(kept, "cut, polished");
    if (cost.peakBytes <= targetBytes && cost.timeUs <= us) {
      us = cost.timeUs;
      i += count;
      step = 2 * count;
      continue;
    }
    for (size_t k = 0; k < count; ++k)
      kept[candidates[i + k]] = 0;
    i += count == 1;
    step = std::max<size_t>(1, count / 2);
  }
}

void RecomputePlanner::planFor(int64_t targetBytes) {
  for (bool lateFirst : {true, false}) {
    std::vector<char> kept = bisect(targetBytes, lateFirst);
    if (!kept.empty())
      polish(std::move(kept), targetBytes);
  }
}

bool RecomputePlanner::enumerate(int32_t limit) {
  std::vector<int32_t> choices;
  for (int32_t v = 0; v < graph.valueCount; ++v)
    if (graph.isForwardValue(v) && graph.rerun[graph.producer[v]] &&
        (graph.liveAtEnd[v] || !graph.readers[v].empty()))
      choices.push_back(v);
  if (int32_t(choices.size()) > limit)
    return false;
  std::vector<char> kept(graph.valueCount, 0);
  for (uint32_t set = 0; set < uint32_t(1) << choices.size(); ++set) {
    for (size_t i = 0; i < choices.size(); ++i)
      kept[choices[i]] = set >> i & 1;
    tryKept(kept, "all choices");
  }
  return true;
}

} // namespace sluice
