#include "codegen/BudgetSearch.h"

#include "codegen/RunStage.h"
#include "ir/graph/Graph.h"
#include "ir/plan/Plan.h"
#include "passes/LiveRanges.h"
#include "passes/MeasureStep.h"
#include "passes/Pipeline.h"
#include "passes/StepProblem.h"
#include "passes/planning/Frontier.h"
#include "passes/planning/RecomputeFloor.h"

#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace sluice {
namespace {

/// Sizes of a plan as it would be written.
struct PlanSize {
  int64_t stateBytes = 0;
  int64_t trainBytes = 0; // step reservation of the training entry
  int64_t otherBytes = 0; // of the largest other program
  double trainUs = 0;     // predicted, of one run of the training entry

  int64_t arenaBytes() const { return stateBytes + std::max(trainBytes, otherBytes); }
};

PlanSize sizeOf(ModuleOp module) {
  constexpr int64_t lineBytes = 64;
  PlanSize size;
  for (auto state : module.getOps<plan::StateOp>())
    size.stateBytes += llvm::alignTo(state.getSize(), lineBytes);
  for (auto program : module.getOps<plan::ProgramOp>()) {
    int64_t bytes = program.getStepBytes();
    if (program.getEntry() != "step" && program.getEntry() != "micro") {
      size.otherBytes = std::max(size.otherBytes, bytes);
      continue;
    }
    size.trainBytes = bytes;
    size.trainUs = program.getPredictedUs().convertToDouble();
  }
  return size;
}

class BudgetSearch {
public:
  BudgetSearch(ModuleOp module, const CompileOptions &options, BudgetChoice &choice)
      : module(module), options(options), choice(choice) {}

  Status run() {
    OwningOpRef<ModuleOp> plain = module.clone();
    if (Status status = planned(*plain, std::nullopt, unconstrained); !status.ok())
      return status;
    choice.unconstrainedBytes = unconstrained.arenaBytes();
    choice.unconstrainedUs = unconstrained.trainUs;
    const TrainingSpec &spec = options.spec;
    if (spec.hasFixedRecompute())
      return runStage(module,
                      [&](OpPassManager &passes) { buildDecidePipeline(passes, spec); });
    bool fits = unconstrained.arenaBytes() <= *spec.budgetBytes;
    if (fits || !trainingEntry(module))
      return Status::success();
    return search();
  }

private:
  /// `stepBytes`: that the step reservation may have, as far as it matters.
  Status planned(ModuleOp clone, std::optional<int64_t> stepBytes, PlanSize &size) {
    if (stepBytes)
      clone->setAttr(stepBudgetAttr, Builder(clone).getI64IntegerAttr(*stepBytes));
    Status status = runStage(clone, [&](OpPassManager &passes) {
      buildPlanPipeline(passes, /*chain=*/options.fuse);
    });
    size = sizeOf(clone);
    return status;
  }

  /// A member of the frontier: what is known of its plan, and then its plan.
  struct Candidate {
    size_t member;
    double leastUs;     // no plan of its runs is predicted faster
    int64_t leastBytes; // of the training entry, in any order
    std::optional<PlanSize> size = {};
  };

  Status search() {
    OwningOpRef<ModuleOp> scratch = trainingOnly();
    StepProblem step(trainingEntry(*scratch), options.spec.keep);
    if (std::string wrong = step.keepError(); !wrong.empty())
      return Status::refused(wrong);
    if (failed(measureStep(step, *scratch, options.fuse)))
      return Status::failed("the training step cannot be measured");
    Frontier frontier = Frontier::build(step.problem);
    if (!frontier.error().empty())
      return Status::failed("the step has no recompute plans: " + frontier.error());
    std::vector<Candidate> candidates = candidatesOf(frontier, step.problem);
    Candidate *best = nullptr;
    if (Status status = findFastest(frontier, candidates, best); !status.ok())
      return status;
    if (best) {
      if (Status status = plan(frontier, *best, std::nullopt); !status.ok())
        return status;
      return take(frontier, *best, step);
    }
    if (Status status = findSmallest(frontier, candidates, best); !status.ok())
      return status;
    // The plan that runs nothing again may be the smallest there is.
    if (!best || best->size->arenaBytes() >= unconstrained.arenaBytes())
      return Status::success();
    return take(frontier, *best, step);
  }

  OwningOpRef<ModuleOp> trainingOnly() {
    OwningOpRef<ModuleOp> clone = module.clone();
    func::FuncOp entry = trainingEntry(*clone);
    for (auto other : llvm::make_early_inc_range(clone->getOps<func::FuncOp>()))
      if (other != entry)
        other.erase();
    return clone;
  }

  /// Members that run something again, the same for every budget, fastest first.
  std::vector<Candidate> candidatesOf(const Frontier &frontier,
                                      const RecomputeProblem &problem) const {
    constexpr size_t most = 128;
    std::vector<Candidate> list;
    size_t count = frontier.members().size(), taken = std::min(most, count);
    for (size_t i = taken; i-- > 0;) {
      size_t member = taken == 1 ? 0 : i * (count - 1) / (taken - 1);
      RecomputeSolution solution = frontier.plan(member);
      if (solution.schedule.size() > problem.ops.size())
        list.push_back({member, unconstrained.trainUs + solution.timeUs - solution.onceUs,
                        leastBytesInAnyOrder(problem, solution)});
    }
    llvm::sort(list, [](const Candidate &a, const Candidate &b) {
      return std::pair(a.leastUs, a.member) < std::pair(b.leastUs, b.member);
    });
    return list;
  }

  /// The plan of a member, really ordered and placed. Other entries are as they are
  /// without it.
  Status plan(const Frontier &frontier, Candidate &candidate,
              std::optional<int64_t> stepBytes) {
    OwningOpRef<ModuleOp> clone = trainingOnly();
    StepProblem(trainingEntry(*clone), options.spec.keep)
        .apply(frontier.plan(candidate.member));
    PlanSize size;
    Status status = planned(*clone, stepBytes, size);
    size.stateBytes = unconstrained.stateBytes;
    size.otherBytes = unconstrained.otherBytes;
    candidate.size = size;
    return status;
  }

  /// The plan that is predicted fastest of those that fit; none of the candidates that
  /// are passed over could be it.
  Status findFastest(const Frontier &frontier, std::vector<Candidate> &candidates,
                     Candidate *&best) {
    int64_t budget = *options.spec.budgetBytes;
    int64_t room = budget - unconstrained.stateBytes;
    for (Candidate &candidate : candidates) {
      if (best && candidate.leastUs > best->size->trainUs)
        break;
      if (candidate.leastBytes > room || unconstrained.otherBytes > room)
        continue;
      if (Status status = plan(frontier, candidate, room); !status.ok())
        return status;
      const PlanSize &size = *candidate.size;
      // More memory is never predicted slower: where all fits, nothing runs again.
      if (size.arenaBytes() <= budget && size.trainUs >= unconstrained.trainUs &&
          (!best || std::pair(size.trainUs, size.trainBytes) <
                        std::pair(best->size->trainUs, best->size->trainBytes)))
        best = &candidate;
    }
    return Status::success();
  }

  Status findSmallest(const Frontier &frontier, std::vector<Candidate> &candidates,
                      Candidate *&best) {
    std::vector<Candidate *> order;
    for (Candidate &candidate : candidates)
      order.push_back(&candidate);
    llvm::sort(order, [](const Candidate *a, const Candidate *b) {
      return std::tuple(a->leastBytes, a->leastUs, a->member) <
             std::tuple(b->leastBytes, b->leastUs, b->member);
    });
    for (Candidate *candidate : order) {
      if (best && candidate->leastBytes >= best->size->trainBytes)
        break;
      bool isSmaller = false;
      if (Status status = planBelow(frontier, *candidate, best, isSmaller); !status.ok())
        return status;
      if (isSmaller)
        best = candidate;
    }
    return Status::success();
  }

  /// Packs only a plan that is smaller than the best so far as tightly as can be.
  Status planBelow(const Frontier &frontier, Candidate &candidate, const Candidate *best,
                   bool &isSmaller) {
    if (best)
      if (Status status = plan(frontier, candidate, best->size->trainBytes - 1);
          !status.ok() || candidate.size->trainBytes >= best->size->trainBytes)
        return status;
    Status status = plan(frontier, candidate, std::nullopt);
    isSmaller = candidate.size->trainUs >= unconstrained.trainUs;
    return status;
  }

  Status take(const Frontier &frontier, const Candidate &candidate,
              const StepProblem &step) {
    const PlanSize &size = *candidate.size;
    RecomputeSolution solution = frontier.plan(candidate.member);
    if (std::string wrong = checkSchedule(step.problem, solution); !wrong.empty())
      return Status::failed("the recompute plan is wrong: " + wrong);
    int64_t budget =
        std::max(*options.spec.budgetBytes - size.stateBytes, size.trainBytes);
    RecomputeCertificate proof = frontier.certificate(budget);
    if (std::string wrong = checkCertificate(step.problem, proof); !wrong.empty())
      return Status::failed("the certificate of the recompute plan is wrong: " + wrong);
    choice.leastAgainUs = std::max(0.0, proof.boundUs - solution.onceUs);
    choice.decisions = step.decisions(solution);
    int64_t runs = solution.schedule.size() - step.problem.ops.size();
    choice.note =
        llvm::formatv(
            "{0} runs more than the {1} of a step that keeps everything, {2:F1} "
            "us instead of {3:F1} us for {4} bytes instead of {5} ({6})",
            runs, step.problem.ops.size(), size.trainUs, unconstrained.trainUs,
            size.arenaBytes(), unconstrained.arenaBytes(), solution.method)
            .str();
    StepProblem(trainingEntry(module), options.spec.keep).apply(solution);
    return Status::success();
  }

  ModuleOp module;
  const CompileOptions &options;
  BudgetChoice &choice;
  PlanSize unconstrained;
};

} // namespace

Status tradeMemory(ModuleOp module, const CompileOptions &options, BudgetChoice &choice) {
  return BudgetSearch(module, options, choice).run();
}

} // namespace sluice
