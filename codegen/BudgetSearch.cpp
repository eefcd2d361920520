#include "codegen/BudgetSearch.h"

#include "codegen/RunStage.h"
#include "ir/graph/Graph.h"
#include "ir/plan/Plan.h"
#include "passes/Pipeline.h"
#include "passes/StepProblem.h"
#include "passes/planning/Frontier.h"

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
    if (Status status = planned(*plain, unconstrained); !status.ok())
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
  Status planned(ModuleOp clone, PlanSize &size) {
    Status status = runStage(clone, [&](OpPassManager &passes) {
      buildPlanPipeline(passes, /*chain=*/options.fuse);
    });
    size = sizeOf(clone);
    return status;
  }

  /// The plan of a member of the frontier, really ordered and placed. Other entries are
  /// as they are without it.
  Status tryMember(const RecomputeSolution &solution, PlanSize &size) {
    OwningOpRef<ModuleOp> clone = module.clone();
    func::FuncOp entry = trainingEntry(*clone);
    for (auto other : llvm::make_early_inc_range(clone->getOps<func::FuncOp>()))
      if (other != entry)
        other.erase();
    StepProblem(entry, options.spec.keep).apply(solution);
    Status status = planned(*clone, size);
    size.stateBytes = unconstrained.stateBytes;
    size.otherBytes = unconstrained.otherBytes;
    return status;
  }

  Status search() {
    OwningOpRef<ModuleOp> scratch = module.clone();
    StepProblem step(trainingEntry(*scratch), options.spec.keep);
    if (std::string wrong = step.keepError(); !wrong.empty())
      return Status::refused(wrong);
    Frontier frontier = Frontier::build(step.problem);
    if (!frontier.error().empty())
      return Status::failed("the step has no recompute plans: " + frontier.error());
    size_t best = 0;
    PlanSize bestSize;
    for (size_t member : candidates(frontier.members().size())) {
      PlanSize size;
      Status status = tryMember(frontier.plan(member), size);
      if (!status.ok())
        return status;
      if (bestSize.trainBytes == 0 || isBetter(size, bestSize))
        best = member, bestSize = size;
    }
    // The plan that runs nothing again may be the smallest there is.
    if (bestSize.arenaBytes() > *options.spec.budgetBytes &&
        unconstrained.arenaBytes() <= bestSize.arenaBytes())
      return Status::success();
    return take(frontier, best, bestSize, step);
  }

  /// Enough members, the same for every budget, from the largest to the smallest.
  static std::vector<size_t> candidates(size_t count) {
    constexpr size_t most = 64;
    std::vector<size_t> list;
    size_t taken = std::min(most, count);
    for (size_t i = taken; i-- > 0;)
      list.push_back(taken == 1 ? 0 : i * (count - 1) / (taken - 1));
    return list;
  }

  /// Of two that fit the faster one, else the smaller one.
  bool isBetter(const PlanSize &a, const PlanSize &b) const {
    int64_t budget = *options.spec.budgetBytes;
    bool fitsA = a.arenaBytes() <= budget, fitsB = b.arenaBytes() <= budget;
    if (fitsA != fitsB)
      return fitsA;
    if (fitsA)
      return std::pair(a.trainUs, a.trainBytes) < std::pair(b.trainUs, b.trainBytes);
    return std::pair(a.arenaBytes(), a.trainUs) < std::pair(b.arenaBytes(), b.trainUs);
  }

  Status take(const Frontier &frontier, size_t member, const PlanSize &size,
              const StepProblem &step) {
    RecomputeSolution solution = frontier.plan(member);
    if (std::string wrong = checkSchedule(step.problem, solution); !wrong.empty())
      return Status::failed("the recompute plan is wrong: " + wrong);
    int64_t budget =
        std::max(*options.spec.budgetBytes - size.stateBytes, solution.peakBytes);
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
