#include "passes/planning/RecomputeCertificate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace sluice {
namespace {

class StepFacts {
public:
  explicit StepFacts(const RecomputeProblem &problem) : problem(problem) {
    writer.assign(problem.values.size(), -1);
    first = int32_t(problem.ops.size());
    for (int32_t o = 0; o < int32_t(problem.ops.size()); ++o) {
      if (problem.ops[o].backward)
        first = std::min(first, o);
      for (int32_t v : problem.ops[o].outputs)
        writer[v] = o;
    }
  }

  int64_t bytes(int32_t v) const {
    int64_t a = problem.alignBytes;
    return (problem.values[v].sizeBytes + a - 1) / a * a;
  }
  int64_t workspace(int32_t o) const {
    int64_t a = problem.alignBytes;
    return (problem.ops[o].workspaceBytes + a - 1) / a * a;
  }
  bool forwardOp(int32_t o) const { return o < first; }
  bool forward(int32_t v) const { return writer[v] >= 0 && forwardOp(writer[v]); }
  bool mayRunAgain(int32_t o) const {
    if (!forwardOp(o) || !problem.ops[o].recomputable)
      return false;
    const auto &outs = problem.ops[o].outputs;
    return std::none_of(outs.begin(), outs.end(),
                        [&](int32_t v) { return problem.values[v].keep; });
  }
  double onceUs() const {
    double us = 0;
    for (const auto &op : problem.ops)
      us += op.costUs;
    return us;
  }

  const RecomputeProblem &problem;
  std::vector<int32_t> writer; // by value, -1: preexisting
  int32_t first = 0;           // backward operation
};

int64_t sumOf(const StepFacts &facts, const std::set<int32_t> &values) {
  int64_t bytes = 0;
  for (int32_t v : values)
    bytes += facts.bytes(v);
  return bytes;
}

/// What backward operations before `o` computed, or exists from the start, and operations
/// from `o` on read.
std::set<int32_t> passing(const StepFacts &facts, int32_t o) {
  const auto &problem = facts.problem;
  std::set<int32_t> values;
  auto hold = [&](int32_t v) {
    if (!facts.forward(v) && facts.writer[v] < o)
      values.insert(v);
  };
  for (size_t k = size_t(o); k < problem.ops.size(); ++k)
    for (int32_t v : problem.ops[k].inputs)
      hold(v);
  for (size_t v = 0; v < problem.values.size(); ++v)
    if (problem.values[v].liveAtEnd)
      hold(int32_t(v));
  return values;
}

std::set<int32_t> touched(const StepFacts &facts, int32_t o) {
  const auto &op = facts.problem.ops[o];
  std::set<int32_t> values(op.inputs.begin(), op.inputs.end());
  values.insert(op.outputs.begin(), op.outputs.end());
  return values;
}

/// Bytes for forward values beside what any schedule holds while `position` runs.
int64_t freeBytes(const StepFacts &facts, const RecomputeCertificate &proof) {
  std::set<int32_t> held = touched(facts, proof.position);
  held.merge(passing(facts, proof.position));
  return proof.budgetBytes - facts.workspace(proof.position) - sumOf(facts, held);
}

/// No backward operation up to the position has an instant in front of it at which the
/// value can be computed and from which it can stay.
bool hasNoInstant(const StepFacts &facts, const RecomputeCertificate &proof) {
  const auto &reads = facts.problem.ops[proof.position].inputs;
  int32_t v = proof.value, writer = facts.writer[v];
  if (!facts.forward(v) || std::count(reads.begin(), reads.end(), v) == 0)
    return false;
  for (int32_t o = proof.position;; --o) {
    // Computed in front of o?
    std::set<int32_t> live = touched(facts, writer);
    if (o > facts.first)
      live.merge(passing(facts, o));
    if (sumOf(facts, live) + facts.workspace(writer) <= proof.budgetBytes)
      return false;
    if (o == facts.first)
      return true;
    // No: then it is resident while the operation before o runs.
    live = touched(facts, o - 1);
    live.merge(passing(facts, o - 1));
    live.insert(v);
    if (sumOf(facts, live) + facts.workspace(o - 1) > proof.budgetBytes)
      return true;
  }
}

/// What the operations behind the position read of forward values, the position's own
/// inputs aside.
std::set<int32_t> neededBehind(const StepFacts &facts, int32_t position) {
  const auto &problem = facts.problem;
  std::set<int32_t> needed;
  for (size_t o = size_t(position) + 1; o < problem.ops.size(); ++o)
    for (int32_t v : problem.ops[o].inputs)
      if (facts.forward(v))
        needed.insert(v);
  for (size_t v = 0; v < problem.values.size(); ++v)
    if (problem.values[v].liveAtEnd && facts.forward(int32_t(v)))
      needed.insert(int32_t(v));
  for (int32_t v : problem.ops[position].inputs)
    needed.erase(v);
  return needed;
}

/// Operations that every schedule has run before the position: it, or a backward one
/// before it, depends on them.
std::set<int32_t> certainlyRun(const StepFacts &facts, int32_t position) {
  std::set<int32_t> run;
  std::vector<int32_t> stack;
  for (int32_t o = facts.first; o <= position; ++o)
    stack.push_back(o);
  while (!stack.empty()) {
    int32_t o = stack.back();
    stack.pop_back();
    for (int32_t v : facts.problem.ops[o].inputs)
      if (facts.writer[v] >= 0 && run.insert(facts.writer[v]).second)
        stack.push_back(facts.writer[v]);
  }
  return run;
}

/// Adds up the flow at every node of the network; capacities and balance are checked.
class FlowCheck {
public:
  FlowCheck(const StepFacts &facts, const RecomputeCertificate &proof)
      : facts(facts), proof(proof), ranBefore(certainlyRun(facts, proof.position)) {}

  std::string run() {
    std::string wrong = addSaves();
    if (wrong.empty())
      wrong = addReads();
    if (wrong.empty())
      wrong = checkValues();
    return wrong.empty() ? checkOps() : wrong;
  }
  long double total() const { return sum; }

private:
  /// Again, or for the first time.
  bool mayRunBehind(int32_t o) const {
    return facts.mayRunAgain(o) || (facts.forwardOp(o) && !ranBefore.count(o));
  }

  std::string addSaves() {
    for (const auto &save : proof.saves) {
      if (save.value < 0 || save.value >= int32_t(facts.writer.size()) ||
          !facts.forward(save.value) || save.flow < 0 || intoOp.count(~save.value))
        return "a flow to keep value " + std::to_string(save.value) + " is not allowed";
      long double capacity =
          (long double)proof.price * facts.bytes(save.value) / proof.unitUs;
      if ((long double)save.flow > capacity * (1 + 1e-12L))
        return "the flow to keep value " + std::to_string(save.value) +
               " is above its price";
      intoOp[~save.value] = 1; // seen; keys below 0 are values
      intoOp[facts.writer[save.value]] += save.flow;
      outOfValue[save.value] += save.flow;
    }
    return {};
  }

  std::string addReads() {
    for (const auto &read : proof.reads) {
      bool exists = read.op >= 0 && read.op < int32_t(facts.problem.ops.size()) &&
                    mayRunBehind(read.op) && read.flow >= 0;
      const auto *op = exists ? &facts.problem.ops[read.op] : nullptr;
      if (!exists || std::count(op->inputs.begin(), op->inputs.end(), read.value) == 0 ||
          !facts.forward(read.value))
        return "a flow from operation " + std::to_string(read.op) + " to value " +
               std::to_string(read.value) + " follows no input";
      outOfOp[read.op] += read.flow;
      intoValue[read.value] += read.flow;
    }
    return {};
  }

  /// The rest comes from the source, which feeds needed values only; inputs of the
  /// position are no part of the network.
  std::string checkValues() {
    std::set<int32_t> needed = neededBehind(facts, proof.position);
    const auto &own = facts.problem.ops[proof.position].inputs;
    auto resident = [&](int32_t v) { return std::count(own.begin(), own.end(), v) > 0; };
    for (auto [v, in] : intoValue)
      if (resident(v) || in > outOfValue[v])
        return "more flows into value " + std::to_string(v) + " than out of it";
    for (auto [v, out] : outOfValue) {
      int64_t fromSource = out - intoValue[v];
      if (resident(v) || (fromSource > 0 && !needed.count(v)))
        return "value " + std::to_string(v) + " is fed, but nothing behind reads it";
      sum += fromSource;
    }
    return {};
  }

  std::string checkOps() {
    for (auto [o, out] : outOfOp)
      if (out > intoOp[o])
        return "more flows out of operation " + std::to_string(o) + " than into it";
    for (auto [o, in] : intoOp) {
      if (o < 0 || !mayRunBehind(o))
        continue; // cannot run again: any amount may end there
      long double cost = ranBefore.count(o) && !proof.infeasible
                             ? (long double)facts.problem.ops[o].costUs
                             : 0;
      if ((long double)(in - outOfOp[o]) * proof.unitUs > cost * (1 + 1e-12L))
        return "more ends at operation " + std::to_string(o) + " than it costs";
    }
    return {};
  }

  const StepFacts &facts;
  const RecomputeCertificate &proof;
  std::set<int32_t> ranBefore;
  std::map<int32_t, int64_t> intoOp, outOfOp, intoValue, outOfValue;
  long double sum = 0;
};

std::string checkTooSmall(const StepFacts &facts, const RecomputeCertificate &proof) {
  if (proof.value >= int32_t(facts.writer.size()))
    return "value " + std::to_string(proof.value) + " does not exist";
  if (proof.value >= 0) {
    bool proved = !facts.forwardOp(proof.position) && hasNoInstant(facts, proof);
    return proved ? ""
                  : "value " + std::to_string(proof.value) +
                        " can be computed within the budget";
  }
  int64_t bytes =
      sumOf(facts, touched(facts, proof.position)) + facts.workspace(proof.position);
  return bytes > proof.budgetBytes ? "" : "what the operation touches fits the budget";
}

} // namespace

std::string checkCertificate(const RecomputeProblem &problem,
                             const RecomputeCertificate &proof) {
  StepFacts facts(problem);
  double once = facts.onceUs(), tolerance = 1e-9 * (1 + once);
  if (proof.position < 0) {
    bool trivial = !proof.infeasible && proof.boundUs <= once + tolerance;
    return trivial ? "" : "the bound is above once, but nothing proves it";
  }
  if (proof.position >= int32_t(problem.ops.size()))
    return "the position is not an operation";
  if (proof.infeasible && (proof.value >= 0 || facts.forwardOp(proof.position)))
    return checkTooSmall(facts, proof);
  if (facts.forwardOp(proof.position))
    return "the position is not a backward operation";
  if (!(proof.price >= 0) || !(proof.unitUs > 0) || !std::isfinite(proof.price))
    return "the price or the unit is not a positive number";
  FlowCheck flow(facts, proof);
  if (std::string wrong = flow.run(); !wrong.empty())
    return wrong;
  int64_t free = freeBytes(facts, proof);
  if (proof.infeasible) {
    // No choice of residents has less than the flow in bytes.
    bool proved = flow.total() * proof.unitUs > (long double)proof.price * free;
    return proved ? "" : "the budget is called too small, but the flow does not prove it";
  }
  long double bound =
      (long double)once + flow.total() * proof.unitUs - (long double)proof.price * free;
  if ((long double)proof.boundUs > std::max<long double>(bound, once) + tolerance)
    return "the bound is stated as " + std::to_string(proof.boundUs) + ", proved is " +
           std::to_string(double(bound));
  return {};
}

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
  for (int64_t i = 0; i < count; ++i) {
    const auto &op = facts.problem.ops[schedule[i].op];
    for (int32_t v : op.inputs)
      instances[latest[v]].end = i;
    for (int32_t v : op.outputs)
      begin(v, i, i);
  }
  for (size_t v = 0; v < facts.writer.size(); ++v)
    if (facts.problem.values[v].liveAtEnd)
      instances[latest[v]].end = count - 1;
  std::vector<int64_t> change(count + 1, 0);
  for (const Instance &instance : instances)
    if (instance.end >= instance.begin) {
      change[instance.begin] += facts.bytes(instance.value);
      change[instance.end + 1] -= facts.bytes(instance.value);
    }
  int64_t level = 0, peak = 0;
  for (int64_t i = 0; i < count; ++i) {
    level += change[i];
    peak = std::max(peak, level + facts.workspace(schedule[i].op));
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
    us += problem.ops[run.op].costUs;
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
