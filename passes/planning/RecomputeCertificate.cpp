#include "passes/planning/RecomputeCertificate.h"

#include "passes/planning/RecomputeCertificateFacts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace sluice {
namespace {

int64_t sumOf(const StepFacts &facts, const std::set<int32_t> &values) {
  int64_t bytes = 0;
  for (int32_t v : values)
    bytes += facts.bytes(v);
  return bytes;
}

/// Operations that every schedule runs behind `position`: the later ones, or where they
/// may be moved those that wait for it.
std::set<int32_t> certainlyBehind(const StepFacts &facts, int32_t position) {
  const auto &ops = facts.problem.ops;
  std::set<int32_t> behind;
  for (int32_t o = position + 1; o < int32_t(ops.size()); ++o) {
    bool waits = facts.problem.backwardInOrder;
    for (int32_t v : ops[o].inputs)
      waits |= facts.writer[v] == position || behind.count(facts.writer[v]) > 0;
    if (waits)
      behind.insert(o);
  }
  return behind;
}

/// Operations that every schedule has run before the position: it, or a backward one
/// that runs before it, depends on them.
std::set<int32_t> certainlyRun(const StepFacts &facts, int32_t position) {
  std::set<int32_t> run;
  std::vector<int32_t> stack{position};
  if (facts.problem.backwardInOrder)
    for (int32_t o = facts.first; o < position; ++o) {
      stack.push_back(o);
      run.insert(o);
    }
  while (!stack.empty()) {
    int32_t o = stack.back();
    stack.pop_back();
    for (int32_t v : facts.problem.ops[o].inputs)
      if (facts.writer[v] >= 0 && run.insert(facts.writer[v]).second)
        stack.push_back(facts.writer[v]);
  }
  return run;
}

/// What backward operations before `o` computed, or exists from the start, and operations
/// behind `o` read.
std::set<int32_t> passing(const StepFacts &facts, int32_t o) {
  const auto &problem = facts.problem;
  std::set<int32_t> values, run = certainlyRun(facts, o);
  auto hold = [&](int32_t v) {
    if (!facts.forward(v) && (facts.writer[v] < 0 || run.count(facts.writer[v])))
      values.insert(v);
  };
  for (int32_t k : certainlyBehind(facts, o))
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
  std::set<int32_t> stays = passing(facts, proof.position);
  int64_t shared =
      facts.shared(proof.position, [&](int32_t v) { return stays.count(v) == 0; });
  held.insert(stays.begin(), stays.end());
  return proof.budgetBytes + shared - facts.workspace(proof.position) -
         sumOf(facts, held);
}

/// What the operations behind the position read of forward values, the position's own
/// inputs aside.
std::set<int32_t> neededBehind(const StepFacts &facts, int32_t position) {
  const auto &problem = facts.problem;
  std::set<int32_t> needed;
  for (int32_t o : certainlyBehind(facts, position))
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
          std::count(op->optionalInputs.begin(), op->optionalInputs.end(), read.value) ||
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
                             ? (long double)facts.problem.ops[o].timeUs(true)
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

/// Which forward values can be resident at each backward operation within a budget, by
/// induction: what stays from the operation before, and what can be computed between.
class ResidencyCheck {
public:
  ResidencyCheck(const StepFacts &facts, int64_t budgetBytes)
      : facts(facts), budget(budgetBytes), possible(facts.writer.size(), 0),
        lastRead(facts.writer.size(), -1),
        firstNeed(facts.problem.ops.size(), INT32_MAX) {
    const auto &ops = facts.problem.ops;
    for (int32_t o = 0; o < int32_t(ops.size()); ++o)
      for (int32_t v : ops[o].inputs)
        lastRead[v] = o;
    for (size_t v = 0; v < lastRead.size(); ++v)
      if (facts.problem.values[v].liveAtEnd)
        lastRead[v] = INT32_MAX;
    for (int32_t o = int32_t(ops.size()); o-- > 0;)
      for (int32_t v : ops[o].inputs)
        if (int32_t w = facts.writer[v]; w >= 0)
          firstNeed[w] = std::min(firstNeed[w], facts.forwardOp(o) ? firstNeed[o] : o);
  }

  bool rulesOut(int32_t position, int32_t value) {
    const auto &reads = facts.problem.ops[position].inputs;
    if (!facts.forward(value) || std::count(reads.begin(), reads.end(), value) == 0)
      return false;
    for (int32_t k = facts.first; k <= position; ++k)
      advance(k);
    return !possible[value];
  }

private:
  /// What exists in front of operation `k`, is read by it or behind, and cannot be
  /// computed again.
  bool passes(int32_t v, int32_t k) const {
    return !facts.forward(v) && facts.writer[v] < k && lastRead[v] >= k;
  }
  int64_t passingBytes(int32_t k) const {
    int64_t bytes = 0;
    for (int32_t v = 0; v < int32_t(lastRead.size()); ++v)
      bytes += passes(v, k) ? facts.bytes(v) : 0;
    return bytes;
  }
  int64_t touchedBytes(int32_t o, int32_t k) const {
    int64_t bytes = facts.workspace(o);
    for (int32_t v : touched(facts, o))
      bytes += passes(v, k) ? 0 : facts.bytes(v);
    return bytes - facts.shared(o, [](int32_t) { return true; });
  }

  void advance(int32_t k) {
    bool start = k == facts.first; // what passes is not known within the forward part
    int64_t between = start ? 0 : passingBytes(k);
    int64_t before = start ? 0 : passingBytes(k - 1) + touchedBytes(k - 1, k - 1);
    std::set<int32_t> own;
    if (!start)
      own = touched(facts, k - 1);
    for (int32_t o = 0; o < facts.first; ++o) {
      bool runs = start || facts.mayRunAgain(o) || firstNeed[o] >= k;
      int64_t without = 0;
      for (int32_t v : facts.problem.ops[o].inputs) {
        const auto &optional = facts.problem.ops[o].optionalInputs;
        bool skip = !start && std::count(optional.begin(), optional.end(), v) > 0;
        runs = runs && (facts.writer[v] < 0 || possible[v] || skip);
        without += skip && facts.writer[v] >= 0 ? facts.bytes(v) : 0;
      }
      runs = runs && between + touchedBytes(o, start ? 0 : k) - without <= budget;
      for (int32_t v : facts.problem.ops[o].outputs) {
        bool stays =
            possible[v] && before + (own.count(v) ? 0 : facts.bytes(v)) <= budget;
        possible[v] = runs || stays;
      }
    }
  }

  const StepFacts &facts;
  int64_t budget;
  std::vector<char> possible;
  std::vector<int32_t> lastRead, firstNeed;
};

std::string checkTooSmall(const StepFacts &facts, const RecomputeCertificate &proof) {
  if (proof.value >= int32_t(facts.writer.size()))
    return "value " + std::to_string(proof.value) + " does not exist";
  if (proof.value >= 0) {
    bool proved =
        !facts.forwardOp(proof.position) && facts.problem.backwardInOrder &&
        ResidencyCheck(facts, proof.budgetBytes).rulesOut(proof.position, proof.value);
    return proved ? ""
                  : "value " + std::to_string(proof.value) +
                        " can be computed within the budget";
  }
  int64_t bytes = sumOf(facts, touched(facts, proof.position)) +
                  facts.workspace(proof.position) -
                  facts.shared(proof.position, [](int32_t) { return true; });
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

} // namespace sluice
