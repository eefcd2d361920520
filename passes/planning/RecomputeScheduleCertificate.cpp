// Runs a schedule on paper.

#include "passes/planning/RecomputeCertificate.h"

#include "passes/planning/RecomputeCertificateFacts.h"

#include <cmath>
#include <set>

namespace sluice {
namespace {

std::string checkRuns(const StepFacts &facts, const RecomputeSolution &solution) {
  const auto &ops = facts.problem.ops;
  std::vector<char> exists(facts.writer.size(), 0), hasRun(ops.size(), 0);
  for (size_t v = 0; v < exists.size(); ++v)
    exists[v] = facts.problem.values[v].preexisting;
  int32_t lastBackward = -1;
  for (const Execution &run : solution.schedule) {
    if (run.op < 0 || run.op >= int32_t(ops.size()))
      return "the schedule runs operation " + std::to_string(run.op) +
             ", which does not exist";
    std::string name = "operation " + std::to_string(run.op);
    if (run.again != (hasRun[run.op] != 0))
      return name + " is marked wrongly as a clone or as none";
    if (run.again && !facts.mayRunAgain(run.op))
      return name + " must not run again";
    for (int32_t v : ops[run.op].inputs)
      if (!exists[v])
        return name + " reads value " + std::to_string(v) + " before it is computed";
    if (!facts.forwardOp(run.op)) {
      if (run.op < lastBackward)
        return name + " runs behind a later backward operation";
      lastBackward = run.op;
    }
    hasRun[run.op] = 1;
    for (int32_t v : ops[run.op].outputs)
      exists[v] = 1;
  }
  for (size_t o = 0; o < ops.size(); ++o)
    if (!hasRun[o])
      return "operation " + std::to_string(o) + " never runs";
  return {};
}

/// Sweep over instances with their first and last instant, and what lives at each.
int64_t sweepPeak(const StepFacts &facts, const std::vector<Execution> &schedule) {
  struct Instance {
    int64_t begin, end;
    int32_t value;
  };
  std::vector<Instance> instances;
  std::vector<int64_t> latest(facts.writer.size(), -1);
  auto begin = [&](int32_t v, int64_t instant, int64_t end) {
    latest[v] = int64_t(instances.size());
    instances.push_back({instant, end, v});
  };
  for (size_t v = 0; v < facts.writer.size(); ++v)
    if (facts.problem.values[v].preexisting)
      begin(int32_t(v), 0, -1);
  int64_t count = int64_t(schedule.size());
  std::vector<std::vector<std::pair<int64_t, int64_t>>> pairs(count); // instances
  for (int64_t i = 0; i < count; ++i) {
    const auto &op = facts.problem.ops[schedule[i].op];
    for (int32_t v : op.inputs)
      instances[latest[v]].end = i;
    for (auto [in, out] : op.inPlace)
      pairs[i].push_back({latest[in], 0});
    for (int32_t v : op.outputs)
      begin(v, i, i);
    for (size_t p = 0; p < pairs[i].size(); ++p)
      pairs[i][p].second = latest[op.inPlace[p].second];
  }
  for (size_t v = 0; v < facts.writer.size(); ++v)
    if (facts.problem.values[v].liveAtEnd)
      instances[latest[v]].end = count; // behind the last run
  std::vector<int64_t> change(count + 2, 0);
  for (const Instance &instance : instances)
    if (instance.end >= instance.begin) {
      change[instance.begin] += facts.bytes(instance.value);
      change[instance.end + 1] -= facts.bytes(instance.value);
    }
  int64_t level = 0, peak = 0;
  for (int64_t i = 0; i < count; ++i) {
    level += change[i];
    int64_t shared = 0;
    std::set<int64_t> taken;
    for (auto [in, out] : pairs[i])
      if (instances[in].end == i && !taken.count(in) && !taken.count(out)) {
        taken.insert({in, out});
        shared +=
            std::min(facts.bytes(instances[in].value), facts.bytes(instances[out].value));
      }
    peak = std::max(peak, level + facts.workspace(schedule[i].op) - shared);
  }
  return peak;
}

} // namespace

std::string checkSchedule(const RecomputeProblem &problem,
                          const RecomputeSolution &solution) {
  if (!solution.error.empty())
    return "no plan: " + solution.error;
  StepFacts facts(problem);
  if (std::string wrong = checkRuns(facts, solution); !wrong.empty())
    return wrong;
  double us = 0;
  for (const Execution &run : solution.schedule)
    us += problem.ops[run.op].timeUs(run.again);
  if (std::abs(us - solution.timeUs) > 1e-9 * (1 + us))
    return "the time is stated as " + std::to_string(solution.timeUs) + ", found " +
           std::to_string(us);
  int64_t peak = sweepPeak(facts, solution.schedule);
  if (peak != solution.peakBytes)
    return "the peak is stated as " + std::to_string(solution.peakBytes) + ", found " +
           std::to_string(peak);
  return {};
}

} // namespace sluice
