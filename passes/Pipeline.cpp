// The design on one page: the stages, their passes, and why in this order.

#include "passes/Pipeline.h"

#include "ir/TrainingSpec.h"
#include "passes/OffloadStep.h"
#include "passes/Passes.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

namespace sluice {

void buildTrainPipeline(OpPassManager &passes, const TrainingSpec &spec) {
  // Values before all else: nothing later depends on them.
  passes.addPass(createInitParameters(spec));
  // Adapters are parameters as others are, but never the model's: no rule of `init`.
  passes.addPass(createApplyLora(spec));
  // What trains comes first: gradients are built for nothing else.
  passes.addPass(createAssignGroups(spec));
  // The loss comes before entries are split off, so that step and eval share it.
  passes.addPass(createBuildLoss(spec));
  // Needs to know what trains and how samples key random numbers; has its own gradient.
  passes.addPass(createFuseAttention());
  // While the graph still is the model's: blocks are seen in its forward part.
  passes.addPass(createGroupParameters(spec));
  passes.addPass(createBuildBackward(spec));
  // Behind the backward part, which finds what trains, and before @forward is gone.
  passes.addPass(createBuildProbe(spec));
  passes.addPass(createBuildFisher(spec));
  // Evaluation is built from @forward, which no gradient code has touched.
  passes.addPass(createBuildEntries(spec));
  // Evaluation and training are masked differently, and updates see what trains instead.
  passes.addPass(createApplyMasks(spec));
  // Rules of the next pass win over it, which knows what is stored how.
  passes.addPass(createAssignFormats(spec));
  // Codes are read through what decodes them, which precision then rounds as other
  // values.
  passes.addPass(createAssignStorage(spec));
  // What is rounded follows from forward and backward together, in every entry alike;
  // updates come behind, and compute in f32.
  passes.addPass(createAssignPrecision(spec));
  // The update sees sums of gradients: it divides once, after all micro-batches.
  passes.addPass(createBuildUpdate(spec));
  // Gradients repeat forward expressions and leave unused ones.
  passes.addPass(createCSEPass());
  passes.addPass(createCanonicalizerPass());
  passes.addPass(createCSEPass());
  // Last: what sums over rows is known, and all that was equal is joined.
  bool storesGradients = spec.measuresNorms() || spec.lossScale.isOn() ||
                         spec.addsGradients() || spec.update.isStaggered() ||
                         spec.ranks > 1;
  passes.addPass(createChunkLogits(spec.logitsBytes, storesGradients));
  passes.addPass(createVerifyTrain());
}

void buildRegionPipeline(OpPassManager &passes, bool fuse) {
  passes.addPass(createDecomposeComposites());
  // Knows core operations only, and needs them before transposes are moved about.
  passes.addPass(createTrackSamples());
  passes.addPass(createCanonicalizerPass());
  passes.addPass(createCSEPass());
  // Needs equal subexpressions joined (a transpose may have more users than one) and
  // leaves transposes and reshapes to be joined again.
  passes.addPass(createLegalizeForKernels());
  passes.addPass(createCanonicalizerPass());
  passes.addPass(createCSEPass());
  // Last: CSE would join again what regions repeat on purpose.
  passes.addPass(createFormRegions(fuse));
}

void buildDecidePipeline(OpPassManager &passes, const TrainingSpec &spec) {
  // Regions are what is stored, so only now it is known what there is to keep. Nothing
  // behind may join equal operations: the clones would be undone.
  passes.addPass(createPlaceRecompute(spec));
}

void buildMeasurePipeline(OpPassManager &passes, bool chain) {
  passes.addPass(createLowerGraphToPlan());
  if (chain)
    passes.addPass(createChainLaunches());
  passes.addPass(createPredictTimes());
}

void buildOrderPipeline(OpPassManager &passes, bool chain) {
  passes.addPass(createLowerGraphToPlan());
  if (chain)
    passes.addPass(createChainLaunches());
  passes.addPass(createOrderPlan());
  passes.addPass(createPredictTimes());
}

void buildPlanPipeline(OpPassManager &passes, bool chain, const OffloadNames *offload) {
  buildOrderPipeline(passes, chain);
  // When a tensor is idle follows from the order, how long from the times.
  passes.addPass(offload ? createStreamOffload(*offload) : createStreamOffload());
  // Behind copies, which are timed by single launches, and while live ranges may change.
  // Updates that find no product to be fused into are merged.
  if (chain) {
    passes.addPass(createFuseUpdates());
    passes.addPass(createMergeUpdates());
  }
  // Behind all that moves launches, which knows collectives as launches like others.
  passes.addPass(createScheduleCollectives());
  // Live ranges follow from the order and the copies, so offsets come after both.
  passes.addPass(createPlanMemory());
  passes.addPass(createVerifyPlan());
}

} // namespace sluice
