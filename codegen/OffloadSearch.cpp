#include "codegen/OffloadSearch.h"

#include "codegen/RunStage.h"
#include "ir/plan/Plan.h"
#include "passes/LiveRanges.h"
#include "passes/MeasureStep.h"
#include "passes/OffloadStep.h"
#include "passes/Pipeline.h"
#include "passes/StepProblem.h"
#include "passes/planning/Frontier.h"

#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace sluice {
namespace {

constexpr int64_t lineBytes = 64;
constexpr size_t mostMembers = 6;     // of the recompute frontier
constexpr size_t mostPlacements = 12; // really placed, when looking for the smallest

/// A plan of the joint frontier.
struct Entry {
  int64_t member = -1; // of the recompute frontier; -1: nothing runs again
  OffloadNames names;
  int64_t deviceBytes = 0; // at least
  int64_t hostBytes = 0;
  double timeUs = 0; // of an update
  std::vector<std::pair<std::string, std::string>> decisions;
};

/// What a planned module takes of the device.
int64_t deviceBytesOf(ModuleOp module) {
  int64_t state = 0, step = 0;
  for (auto tensor : module.getOps<plan::StateOp>())
    if (!tensor.isOnHost())
      state += llvm::alignTo(tensor.getSize(), lineBytes);
  for (auto program : module.getOps<plan::ProgramOp>())
    step = std::max<int64_t>(step, program.getStepBytes());
  return state + step;
}

class OffloadSearch {
public:
  OffloadSearch(ModuleOp module, const CompileOptions &options,
                const std::map<std::string, char> *states, BudgetChoice &choice)
      : module(module), options(options), states(states), choice(choice) {}

  Status run() {
    const TrainingSpec &spec = options.spec;
    if (spec.hasFixedRecompute()) {
      Status status = runStage(
          module, [&](OpPassManager &passes) { buildDecidePipeline(passes, spec); });
      if (!status.ok())
        return status;
    }
    if (Status status = measurePlain(); !status.ok())
      return status;
    if (Status status = addEntries(-1); !status.ok())
      return status;
    bool taken = false;
    if (Status status = takeFree(taken); !status.ok() || taken)
      return status;
    bool recomputes =
        spec.budgetBytes && !spec.hasFixedRecompute() && spec.recompute != "none";
    if (recomputes && trainingEntry(module)) {
      if (Status status = addFrontier(); !status.ok())
        return status;
    }
    if (!spec.budgetBytes)
      return take(entries.front());
    prune();
    return pick();
  }

private:
  Status ordered(ModuleOp clone) {
    Status status = runStage(
        clone, [&](OpPassManager &passes) { buildOrderPipeline(passes, options.fuse); });
    for (auto program : clone.getOps<plan::ProgramOp>())
      mergeInPlace(program);
    return status;
  }

  /// The plan that neither runs again nor moves anything.
  Status measurePlain() {
    OwningOpRef<ModuleOp> clone = module.clone();
    Status status = runStage(
        *clone, [&](OpPassManager &passes) { buildPlanPipeline(passes, options.fuse); });
    choice.unconstrainedBytes = deviceBytesOf(*clone);
    for (auto program : clone->getOps<plan::ProgramOp>())
      if (program.getEntry() == "step" || program.getEntry() == "micro")
        choice.unconstrainedUs = program.getPredictedUs().convertToDouble();
    return status;
  }

  OwningOpRef<ModuleOp> cloneOf(int64_t member) {
    OwningOpRef<ModuleOp> clone = module.clone();
    if (member >= 0)
      StepProblem(trainingEntry(*clone), options.spec.keep).apply(frontier->plan(member));
    return clone;
  }

  OffloadChoice startOf(OffloadStep &step) {
    bool host = options.spec.offload == "host";
    OffloadChoice start =
        host ? step.withStates({"moment", "master"}) : keepAll(step.problem);
    if (states) {
      start = step.withNames(*states);
      for (OffloadProblem::State &state : step.problem.states)
        state.movable = false;
    }
    return start;
  }

  Status addEntries(int64_t member) {
    OwningOpRef<ModuleOp> clone = cloneOf(member);
    if (Status status = ordered(*clone); !status.ok())
      return status;
    OffloadStep step(*clone);
    OffloadChoice start = startOf(step);
    if (member < 0) {
      rememberLink(step);
      plainUs = measureOffload(step.problem, keepAll(step.problem)).timeUs;
    }
    std::vector<OffloadPlan> plans;
    if (options.spec.budgetBytes)
      plans = offloadPlans(step.problem, start);
    else
      plans.push_back(measureOffload(step.problem, start));
    for (const OffloadPlan &plan : plans)
      entries.push_back({member, step.names(plan.choice), plan.deviceBytes,
                         plan.hostBytes, plan.timeUs, step.decisions(plan.choice)});
    return Status::success();
  }

  void rememberLink(const OffloadStep &step) {
    func::FuncOp entry = trainingEntry(module);
    StringRef name = entry ? entry.getSymName() : "step";
    link = step.link;
    readOnlyBytes = step.readOnlyStateBytes(name);
    residentStateBytes = step.stateBytes() - step.untouchedStateBytes(name);
    for (const OffloadProblem::Program &program : step.problem.programs)
      for (const StreamProblem::Tensor &tensor : program.stream.tensors)
        movableBytes += llvm::alignTo(tensor.sizeBytes, lineBytes);
  }

  Status addFrontier() {
    scratch = module.clone();
    func::FuncOp entry = trainingEntry(*scratch);
    for (auto other : llvm::make_early_inc_range(scratch->getOps<func::FuncOp>()))
      if (other != entry)
        other.erase();
    problem = std::make_unique<StepProblem>(entry, options.spec.keep);
    if (std::string wrong = problem->keepError(); !wrong.empty())
      return Status::refused(wrong);
    if (failed(measureStep(*problem, *scratch, options.fuse)))
      return Status::failed("the training step cannot be measured");
    frontier.emplace(Frontier::build(problem->problem));
    if (!frontier->error().empty())
      return Status::failed("the step has no recompute plans: " + frontier->error());
    size_t count = frontier->members().size(), taken = std::min(mostMembers, count);
    for (size_t i = 0; i < taken; ++i) {
      size_t member = taken == 1 ? 0 : i * (count - 1) / (taken - 1);
      if (frontier->plan(member).schedule.size() == problem->problem.ops.size())
        continue;
      if (Status status = addEntries(static_cast<int64_t>(member)); !status.ok())
        return status;
    }
    return Status::success();
  }

  /// Where copies hide behind launches altogether nothing can be faster: the first such
  /// entry that fits.
  Status takeFree(bool &taken) {
    if (!options.spec.budgetBytes)
      return Status::success();
    for (const Entry &entry : entries) {
      if (entry.deviceBytes > targetBytes() || entry.timeUs > plainUs)
        continue;
      int64_t bytes = 0;
      if (Status status = placed(entry, bytes); !status.ok())
        return status;
      if (bytes <= targetBytes()) {
        taken = true;
        return take(entry);
      }
    }
    return Status::success();
  }

  /// Offload begins at a share of the budget: what fits below it is as fast as can be.
  int64_t targetBytes() const {
    return static_cast<int64_t>(double(*options.spec.budgetBytes) *
                                options.spec.offloadThreshold);
  }

  /// Entries that are neither faster nor smaller than others go; the rest is fastest
  /// first.
  void prune() {
    // Of plans as fast as each other the one that moves least comes first. Each is there
    // once: ties are the same plan.
    auto key = [](const Entry &entry) {
      return std::tuple(entry.timeUs, -entry.deviceBytes, entry.member,
                        entry.names.states, entry.names.buffers);
    };
    llvm::sort(entries, [&](const Entry &a, const Entry &b) { return key(a) < key(b); });
    std::vector<Entry> kept;
    for (Entry &entry : entries)
      if (kept.empty() || entry.deviceBytes < kept.back().deviceBytes)
        kept.push_back(std::move(entry));
    entries = std::move(kept);
  }

  Status placed(const Entry &entry, int64_t &bytes) {
    OwningOpRef<ModuleOp> clone = cloneOf(entry.member);
    Status status = runStage(*clone, [&](OpPassManager &passes) {
      buildPlanPipeline(passes, options.fuse, &entry.names);
    });
    bytes = deviceBytesOf(*clone);
    return status;
  }

  Status pick() {
    for (const Entry &entry : entries) {
      if (entry.deviceBytes > targetBytes())
        continue;
      int64_t bytes = 0;
      if (Status status = placed(entry, bytes); !status.ok())
        return status;
      if (bytes <= targetBytes())
        return take(entry);
    }
    const Entry *smallest = nullptr;
    int64_t least = 0;
    size_t tried = 0;
    for (const Entry &entry : llvm::reverse(entries)) {
      if ((smallest && entry.deviceBytes >= least) || tried++ == mostPlacements)
        break;
      int64_t bytes = 0;
      if (Status status = placed(entry, bytes); !status.ok())
        return status;
      if (!smallest || bytes < least)
        smallest = &entry, least = bytes;
    }
    return take(*smallest);
  }

  Status take(const Entry &entry) {
    choice.offload = entry.names;
    choice.hostBytes = entry.hostBytes;
    choice.decisions = entry.decisions;
    if (problem)
      if (Status status = prove(); !status.ok())
        return status;
    std::string moved;
    size_t buffers = 0;
    for (auto &[name, list] : entry.names.buffers)
      buffers += list.size();
    if (!entry.names.empty())
      choice.notes.push_back(
          llvm::formatv("offload: {0} tensors of the state and {1} values lie in the "
                        "host's memory, {2} bytes of it; {3:F1} us an update",
                        entry.names.states.size(), buffers, entry.hostBytes, entry.timeUs)
              .str());
    if (entry.member < 0)
      return Status::success();
    RecomputeSolution solution = frontier->plan(entry.member);
    if (std::string wrong = checkSchedule(problem->problem, solution); !wrong.empty())
      return Status::failed("the recompute plan is wrong: " + wrong);
    addRecomputeDecisions(solution);
    choice.note = llvm::formatv("{0} runs more than the {1} of a step that keeps "
                                "everything ({2})",
                                solution.schedule.size() - problem->problem.ops.size(),
                                problem->problem.ops.size(), solution.method)
                      .str();
    StepProblem(trainingEntry(module), options.spec.keep).apply(solution);
    return Status::success();
  }

  /// Of what is kept in the sense of the recompute plan, some is in the host's memory.
  void addRecomputeDecisions(const RecomputeSolution &solution) {
    for (auto &line : problem->decisions(solution)) {
      bool moved = llvm::any_of(choice.decisions, [&](auto &other) {
        return other.first == line.first &&
               StringRef(other.second).starts_with("offloaded");
      });
      if (!moved || !StringRef(line.second).starts_with("kept"))
        choice.decisions.push_back(line);
    }
  }

  /// No plan under the budget is predicted faster, whatever it runs again or moves. The
  /// bytes moved that make the two ways meet are found by bisection.
  Status prove() {
    int64_t budget = *options.spec.budgetBytes - residentStateBytes;
    int64_t low = 0, high = movableBytes + residentStateBytes;
    OffloadCertificate best;
    for (int round = 0; round < 16 && low <= high; ++round) {
      int64_t moved = low + (high - low) / 2;
      OffloadCertificate proof = certificate(budget, moved);
      if (round == 0 || leastExtraUs(proof) > leastExtraUs(best))
        best = proof;
      bool linkIsLess = proof.compute.infeasible || proof.linkUs < proof.compute.boundUs;
      if (linkIsLess)
        low = moved + 1;
      else
        high = moved - 1;
    }
    if (std::string wrong = checkOffloadCertificate(problem->problem, link, best);
        !wrong.empty())
      return Status::failed("the certificate of the offload plan is wrong: " + wrong);
    choice.leastAgainUs = leastExtraUs(best);
    return Status::success();
  }

  /// What any plan takes more than the one that neither runs again nor moves anything.
  double leastExtraUs(const OffloadCertificate &proof) const {
    double linkUs = proof.linkUs - choice.unconstrainedUs;
    double again = proof.compute.infeasible ? linkUs : proof.compute.boundUs - onceUs();
    return std::max(0.0, std::min(linkUs, again));
  }

  double onceUs() const {
    double us = 0;
    for (const RecomputeProblem::Op &op : problem->problem.ops)
      us += op.costUs;
    return us;
  }

  OffloadCertificate certificate(int64_t budget, int64_t moved) {
    OffloadCertificate proof;
    proof.budgetBytes = budget;
    proof.movedBytes = moved;
    proof.readOnlyBytes = readOnlyBytes;
    proof.linkUs = leastLinkUs(moved, readOnlyBytes, link);
    proof.compute = frontier->certificate(budget + moved);
    proof.boundUs = proof.compute.infeasible
                        ? proof.linkUs
                        : std::min(proof.linkUs, proof.compute.boundUs);
    proof.boundUs = std::max(proof.boundUs, onceUs());
    return proof;
  }

  ModuleOp module;
  const CompileOptions &options;
  const std::map<std::string, char> *states;
  BudgetChoice &choice;
  std::vector<Entry> entries;
  OwningOpRef<ModuleOp> scratch;
  std::unique_ptr<StepProblem> problem;
  std::optional<Frontier> frontier;
  LinkRates link;
  double plainUs = 0; // of an update that neither runs again nor moves anything
  int64_t readOnlyBytes = 0, residentStateBytes = 0, movableBytes = 0;
};

} // namespace

Status tradeMemoryAndLink(ModuleOp module, const CompileOptions &options,
                          const std::map<std::string, char> *states,
                          BudgetChoice &choice) {
  return OffloadSearch(module, options, states, choice).run();
}

} // namespace sluice
