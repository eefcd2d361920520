// Checks of variants: which programs belong together.

#include "runtime/PlanCheck.h"

#include <algorithm>
#include <unordered_set>

namespace sluice {

namespace {

constexpr uint32_t maxVariants = 4096;
constexpr int64_t maxBatch = int64_t(1) << 40;

Status broken(const std::string &text) {
  return Status::damaged("plan refused: " + text);
}

/// Programs that a session runs together.
struct ProgramSet {
  std::string where; // "", or "variant 'T=64': "
  int64_t batch = 0;
  std::vector<const fbs::Program *> programs;
};

Status checkRows(const ProgramSet &set, const fbs::Program &program, bool areInputs) {
  const auto *ports = areInputs ? program.inputs() : program.outputs();
  for (uint32_t i = 0; i < sizeOf(ports); ++i) {
    const fbs::Port &port = *ports->Get(i);
    int64_t rows = sizeOf(port.shape()) > 0 ? port.shape()->Get(0) : 0;
    if (port.batched() && (areInputs ? rows != set.batch : rows % set.batch != 0))
      return broken(set.where + "program '" + std::string(viewOf(program.name())) +
                    "': " + (areInputs ? "input '" : "output '") +
                    std::string(viewOf(port.name()).substr(0, 200)) + "' has " +
                    std::to_string(rows) + " rows, the batch is " +
                    std::to_string(set.batch));
  }
  return Status::success();
}

/// Groups that interleave: `micro` with an `update.P` for every P of the turn.
Status checkTurns(const fbs::Plan &plan, const ProgramSet &set,
                  const std::unordered_set<std::string_view> &names) {
  int64_t turns = 0;
  for (std::string_view name : names)
    turns += name.starts_with("update.");
  bool trains = names.contains("micro");
  for (int64_t turn = 0; trains && turn < plan.update_every(); ++turn)
    if (!names.contains("update." + std::to_string(turn)))
      return broken(set.where + "program 'update." + std::to_string(turn) +
                    "' is missing");
  if (turns != (trains ? plan.update_every() : 0) || names.contains("step") ||
      names.contains("update") || names.contains("close_rank"))
    return broken(set.where + "its programs do not go with groups that take turns of " +
                  std::to_string(plan.update_every()) + " steps");
  return Status::success();
}

/// `step` alone, or `micro` with `update`, as `accumulate` says; of several ranks some
/// may have nothing to `step` on, and `update`.
Status checkEntries(const fbs::Plan &plan, const ProgramSet &set,
                    const std::unordered_set<std::string_view> &names) {
  bool accumulates = plan.accumulate() > 1 || plan.update_every() > 1;
  bool shares = plan.ranks() > 1;
  if (plan.update_every() > 1)
    return checkTurns(plan, set, names);
  for (uint32_t i = 0; i < sizeOf(plan.groups()); ++i)
    shares |= plan.groups()->Get(i)->delay() > 0; // what waits is applied by `update`
  auto mismatch = [&](const char *what) {
    return broken(set.where + what + " with accumulate " +
                  std::to_string(plan.accumulate()) +
                  (shares ? " and ranks " + std::to_string(plan.ranks()) : ""));
  };
  if (names.contains("step") && accumulates)
    return mismatch("program 'step'");
  if ((names.contains("micro") || (names.contains("update") && !shares)) && !accumulates)
    return mismatch("program 'micro' or 'update'");
  if (names.contains(accumulates ? "micro" : "step") != names.contains("update") &&
      (accumulates || shares))
    return mismatch(accumulates ? "only one of 'micro' and 'update'"
                                : "only one of 'step' and 'update'");
  if (names.contains("close_rank") != (names.contains("micro") && plan.as_ranks() > 1))
    return broken(set.where + "program 'close_rank' does not go with as_ranks " +
                  std::to_string(plan.as_ranks()));
  return Status::success();
}

Status checkSet(const fbs::Plan &plan, const ProgramSet &set, VisitBudget &budget) {
  std::unordered_set<std::string_view> names;
  for (const fbs::Program *program : set.programs) {
    std::string_view name = viewOf(program->name());
    if (!names.insert(name).second)
      return broken(set.where + "program '" + std::string(name) + "' is there twice");
    if (!budget.take(sizeOf(program->inputs())) ||
        !budget.take(sizeOf(program->outputs())))
      return broken("its parts are shared");
    for (bool areInputs : {true, false})
      if (Status status = checkRows(set, *program, areInputs); !status.ok())
        return status;
  }
  return checkEntries(plan, set, names);
}

Result<ProgramSet> programsOf(const fbs::Plan &plan, const fbs::Variant &variant,
                              VisitBudget &budget) {
  ProgramSet set;
  set.where = "variant '" + std::string(viewOf(variant.name()).substr(0, 200)) + "': ";
  set.batch = variant.batch();
  if (viewOf(variant.name()).empty() || set.batch < 1 || set.batch > maxBatch)
    return broken(set.where + "it has no name or no batch");
  if (!budget.take(sizeOf(variant.programs())))
    return broken("its parts are shared");
  uint64_t stepBytes = 0;
  for (uint32_t i = 0; i < sizeOf(variant.programs()); ++i) {
    uint32_t index = variant.programs()->Get(i);
    if (index >= sizeOf(plan.programs()))
      return broken(set.where + "it names program " + std::to_string(index) + " of " +
                    std::to_string(sizeOf(plan.programs())));
    set.programs.push_back(plan.programs()->Get(index));
    stepBytes = std::max(stepBytes, set.programs.back()->step_bytes());
  }
  if (stepBytes != variant.step_bytes())
    return broken(set.where + "it states " + std::to_string(variant.step_bytes()) +
                  " bytes of step reservation, its programs need " +
                  std::to_string(stepBytes));
  return set;
}

bool hasSameNames(const ProgramSet &a, const ProgramSet &b) {
  return std::is_permutation(
      a.programs.begin(), a.programs.end(), b.programs.begin(), b.programs.end(),
      [](auto *x, auto *y) { return viewOf(x->name()) == viewOf(y->name()); });
}

/// Every pair (bucket, rung) is there once, and the first variant is (0, 0).
Status checkGrid(const fbs::Plan &plan) {
  uint32_t count = sizeOf(plan.variants());
  std::unordered_set<uint64_t> places;
  uint64_t buckets = 0, rungs = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const fbs::Variant &variant = *plan.variants()->Get(i);
    uint64_t bucket = variant.bucket(), rung = variant.rung();
    if (bucket >= count || rung >= count || !places.insert(bucket * count + rung).second)
      return broken("variant '" + std::string(viewOf(variant.name()).substr(0, 200)) +
                    "' has an impossible bucket or rung, or one that is there twice");
    buckets = std::max(buckets, bucket + 1), rungs = std::max(rungs, rung + 1);
  }
  const fbs::Variant &first = *plan.variants()->Get(0);
  if (buckets * rungs != count || first.bucket() != 0 || first.rung() != 0 ||
      first.batch() != plan.batch())
    return broken("its variants are not one for each bucket and rung, or the first is "
                  "not the plan's own");
  return Status::success();
}

} // namespace

Status checkVariants(const fbs::Plan &plan, VisitBudget &budget) {
  uint32_t count = sizeOf(plan.variants());
  if (count == 0) {
    ProgramSet all;
    all.batch = plan.batch();
    for (uint32_t i = 0; i < sizeOf(plan.programs()); ++i)
      all.programs.push_back(plan.programs()->Get(i));
    return checkSet(plan, all, budget);
  }
  if (count > maxVariants || !budget.take(count))
    return broken("it has too many variants");
  if (Status status = checkGrid(plan); !status.ok())
    return status;
  std::optional<ProgramSet> first;
  for (uint32_t i = 0; i < count; ++i) {
    auto set = programsOf(plan, *plan.variants()->Get(i), budget);
    if (!set)
      return set.status();
    if (Status status = checkSet(plan, *set, budget); !status.ok())
      return status;
    if (!first)
      first = *set;
    else if (!hasSameNames(*first, *set))
      return broken(set->where + "it has other programs than the first variant");
  }
  return Status::success();
}

} // namespace sluice
