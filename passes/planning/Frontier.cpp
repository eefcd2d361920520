#include "passes/planning/Frontier.h"

#include "passes/planning/RecomputeDrop.h"
#include "passes/planning/RecomputeLevels.h"
#include "passes/planning/RecomputePlanner.h"
#include "passes/planning/RecomputeShave.h"

#include <algorithm>

namespace sluice {

struct Frontier::Planner {
  RecomputeProblem problem;
  RecomputeGraph graph;
  std::unique_ptr<RecomputeBound> bound;
  std::vector<ParetoPlans::Plan> plans; // as the members
};

Frontier::Frontier() : planner(std::make_unique<Planner>()) {}
Frontier::Frontier(Frontier &&) = default;
Frontier::~Frontier() = default;

namespace {

std::vector<int32_t> sequenceOf(const ParetoPlans::Plan &plan,
                                ScheduleSimulator &simulator) {
  if (!plan.sequence.empty())
    return plan.sequence;
  return simulator.sequenceFor(std::vector<char>(plan.kept.begin(), plan.kept.end()));
}

/// Plans somewhat above a target, brought down to it operation by operation: segments of
/// many levels are coarser than that.
void shavePlans(const RecomputeGraph &graph, int64_t least, int64_t once,
                ParetoPlans &plans) {
  ScheduleSimulator simulator(graph);
  std::vector<int64_t> targets;
  for (int64_t i = 16; i > 0; --i)
    targets.push_back(least + (once - least) * i / 16);
  for (int64_t percent : {8, 6, 4, 2, 0})
    if (least + least * percent / 100 < targets.back())
      targets.push_back(least + least * percent / 100);
  for (int64_t target : targets) {
    auto above = plans.all().upper_bound(target);
    if (above == plans.all().end())
      continue;
    std::vector<int32_t> sequence =
        shavePeaks(graph, sequenceOf(above->second, simulator), target);
    ScheduleCost cost = simulator.simulate(sequence);
    if (plans.wouldTake(cost))
      plans.add({cost, {}, std::move(sequence), "levels, shaved"});
  }
}

/// For targets between the least and the most at which a plan may be far from the best:
/// the plan within the target, and plans above it brought down to it, with what room is
/// left used to run less again.
void improvePlans(const RecomputeGraph &graph, RecomputeBound &bound, int64_t most,
                  int32_t targets, ParetoPlans &plans) {
  constexpr int simulations = 300;
  constexpr double closeEnough = 1.001;
  ScheduleSimulator simulator(graph);
  int64_t least = plans.all().begin()->first;
  int32_t stride = 1 + graph.opCount / 16000; // each is dear for large steps
  for (int32_t i = 1; i < targets; i += stride) {
    int64_t target = least + (most - least) * i / targets;
    const ParetoPlans::Plan *within = plans.fastestWithin(target);
    if (within && within->cost.timeUs <= closeEnough * bound.timeUs(target))
      continue;
    auto improve = [&](std::vector<int32_t> sequence, const char *method) {
      sequence = dropRuns(graph, simulator, std::move(sequence), target, simulations);
      ScheduleCost cost = simulator.simulate(sequence);
      if (plans.wouldTake(cost))
        plans.add({cost, {}, std::move(sequence), method});
    };
    if (within)
      improve(sequenceOf(*within, simulator), "runs left out");
    for (int64_t percent : {0, 10}) {
      auto above = plans.all().upper_bound(target + (most - target) * percent / 100);
      if (above != plans.all().end())
        improve(shavePeaks(graph, sequenceOf(above->second, simulator), target),
                "shaved, runs left out");
    }
  }
}

/// From many levels to one run again to none: each only where it can still gain.
ParetoPlans findPlans(const RecomputeGraph &graph, RecomputeBound &bound,
                      const FrontierOptions &options) {
  ParetoPlans plans;
  if (graph.firstBackward == graph.opCount) {
    ScheduleSimulator simulator(graph);
    std::vector<char> all(graph.valueCount, 1);
    plans.add({simulator.simulateKept(all),
               std::vector<bool>(all.begin(), all.end()),
               {},
               "keep everything"});
    return plans;
  }
  RecomputeCut boundary(graph, graph.firstBackward, RecomputeCut::Purpose::Plan);
  RecomputePlanner planner(graph, boundary, plans);
  planner.keepEverything();
  int64_t most = plans.all().rbegin()->first,
          least = structuralMinimum(graph, true).bytes;
  planner.enumerate(options.exactLimit);
  for (int32_t i = 0; i <= options.targets; ++i)
    planner.planFor(most - (most - least) * i / std::max(1, options.targets));
  int64_t once = plans.all().begin()->first;
  RecomputeLevels(graph, options.segments, options.slots)
      .addPlans(std::min(most, once + (most - once) / 8), plans);
  shavePlans(graph, least, once, plans);
  improvePlans(graph, bound, most, options.targets, plans);
  return plans;
}

} // namespace

Frontier Frontier::build(const RecomputeProblem &problem,
                         const FrontierOptions &options) {
  Frontier frontier;
  Planner &planner = *frontier.planner;
  planner.problem = problem;
  planner.graph = RecomputeGraph::build(problem, frontier.message);
  if (!frontier.message.empty())
    return frontier;
  planner.bound = std::make_unique<RecomputeBound>(planner.graph, options.boundInstants);
  ParetoPlans plans = findPlans(planner.graph, *planner.bound, options);
  for (const auto &[bytes, plan] : plans.all()) {
    frontier.list.push_back({bytes, plan.cost.timeUs, plan.method});
    planner.plans.push_back(plan);
  }
  return frontier;
}

int64_t Frontier::structuralMinimumBytes() const {
  return list.empty()
             ? 0
             : structuralMinimum(planner->graph, planner->graph.backwardInOrder).bytes;
}

RecomputeSolution Frontier::plan(size_t member) const {
  const ParetoPlans::Plan &plan = planner->plans[member];
  ScheduleSimulator simulator(planner->graph);
  RecomputeSolution solution;
  if (plan.kept.empty())
    solution = simulator.solutionOf(plan.sequence);
  else
    solution = simulator.solutionOf(
        simulator.sequenceFor(std::vector<char>(plan.kept.begin(), plan.kept.end())));
  solution.method = plan.method;
  return solution;
}

RecomputeSolution Frontier::planForBudget(int64_t budgetBytes) const {
  RecomputeSolution failed;
  failed.error = message;
  if (list.empty())
    return failed;
  auto behind = std::upper_bound(list.begin(), list.end(), budgetBytes,
                                 [](int64_t bytes, const FrontierMember &member) {
                                   return bytes < member.peakBytes;
                                 });
  if (behind != list.begin())
    return plan(size_t(behind - list.begin()) - 1);
  RecomputeSolution smallest = plan(0);
  failed.error = "a budget of " + std::to_string(budgetBytes) +
                 " bytes is too small; the smallest that can be met is " +
                 std::to_string(smallest.peakBytes) + ", filled by";
  std::vector<int32_t> live = liveAtPeak(planner->problem, smallest);
  for (size_t i = 0; i < std::min<size_t>(live.size(), 4); ++i)
    failed.error += std::string(i ? "," : "") + " value " + std::to_string(live[i]) +
                    " (" + std::to_string(planner->graph.size[live[i]]) + ")";
  if (live.size() > 4)
    failed.error += " and " + std::to_string(live.size() - 4) + " more";
  return failed;
}

double Frontier::lowerBoundUs(int64_t budgetBytes) const {
  return planner->bound ? planner->bound->timeUs(budgetBytes) : 0;
}

RecomputeCertificate Frontier::certificate(int64_t budgetBytes) const {
  return planner->bound ? planner->bound->certificate(budgetBytes)
                        : RecomputeCertificate();
}

} // namespace sluice
