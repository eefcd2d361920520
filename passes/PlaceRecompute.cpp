// PlaceRecompute: the fixed policies of `memory.recompute`. What may run again, what it
// costs and how it is written back is StepProblem's; where, planning/Recompute's.

#include "ir/TrainingSpec.h"
#include "passes/Passes.h"
#include "passes/RecomputeRegions.h"
#include "passes/StepProblem.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_PLACERECOMPUTE
#include "passes/Passes.h.inc"
namespace {

struct PlaceRecompute : impl::PlaceRecomputeBase<PlaceRecompute> {
  explicit PlaceRecompute(const TrainingSpec &spec) : spec(spec) {}

  void runOnOperation() override {
    RecomputePolicy policy;
    if (spec.recompute == "sqrt")
      policy.kind = RecomputeKind::Sqrt;
    else if (spec.recompute == "every")
      policy.kind = RecomputeKind::Every;
    else if (spec.recompute == "regions")
      policy.kind = RecomputeKind::Regions;
    else
      return;
    policy.every = static_cast<int32_t>(std::min<int64_t>(spec.recomputeEvery, 1 << 30));
    func::FuncOp entry = trainingEntry(getOperation());
    if (entry && failed(place(entry, policy)))
      signalPassFailure();
  }

private:
  LogicalResult place(func::FuncOp entry, RecomputePolicy &policy) {
    StepProblem step(entry, spec.keep);
    if (std::string wrong = step.keepError(); !wrong.empty())
      return emitError(UnknownLoc::get(&getContext())) << wrong;
    NamedRegions regions = namedRegions(step, spec.recomputeRegions);
    if (!regions.error.empty())
      return emitError(UnknownLoc::get(&getContext())) << regions.error;
    policy.regions = std::move(regions.operations);
    RecomputeSolution solution = planByPolicy(step.problem, policy);
    if (!solution.error.empty())
      return entry.emitError("no plan for 'memory.recompute': ") << solution.error;
    step.apply(solution);
    report(step.problem, solution);
    return success();
  }

  void report(const RecomputeProblem &problem, const RecomputeSolution &solution) {
    SmallVector<Attribute> lines;
    if (auto known = getOperation()->getAttrOfType<ArrayAttr>("graph.report"))
      lines.append(known.begin(), known.end());
    std::string line = llvm::formatv(
        "recompute: {0} runs more than the {1} of a step that keeps everything, by '{2}'",
        solution.schedule.size() - problem.ops.size(), problem.ops.size(),
        spec.recompute);
    lines.push_back(StringAttr::get(&getContext(), line));
    getOperation()->setAttr("graph.report", ArrayAttr::get(&getContext(), lines));
  }

  const TrainingSpec &spec;
};

} // namespace

std::unique_ptr<Pass> createPlaceRecompute(const TrainingSpec &spec) {
  return std::make_unique<PlaceRecompute>(spec);
}
} // namespace sluice
