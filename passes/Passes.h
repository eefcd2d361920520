#pragma once
// How to make each pass. What a pass does stands in Passes.td; the spec must outlive the
// pass.

#include "ir/graph/Graph.h"
#include "ir/plan/Plan.h"

#include "mlir/Pass/Pass.h"

#include <memory>

namespace sluice {
struct TrainingSpec;

std::unique_ptr<mlir::Pass> createInitParameters(const TrainingSpec &spec);
std::unique_ptr<mlir::Pass> createApplyLora(const TrainingSpec &spec);
std::unique_ptr<mlir::Pass> createAssignGroups(const TrainingSpec &spec);
std::unique_ptr<mlir::Pass> createBuildLoss(const TrainingSpec &spec);
std::unique_ptr<mlir::Pass> createGroupParameters(const TrainingSpec &spec);
std::unique_ptr<mlir::Pass> createFuseAttention();
std::unique_ptr<mlir::Pass> createBuildBackward(const TrainingSpec &spec);
std::unique_ptr<mlir::Pass> createBuildProbe(const TrainingSpec &spec);
std::unique_ptr<mlir::Pass> createBuildFisher(const TrainingSpec &spec);
std::unique_ptr<mlir::Pass> createBuildUpdate(const TrainingSpec &spec);
std::unique_ptr<mlir::Pass> createBuildEntries(const TrainingSpec &spec);
std::unique_ptr<mlir::Pass> createApplyMasks(const TrainingSpec &spec);
std::unique_ptr<mlir::Pass> createAssignFormats(const TrainingSpec &spec);
std::unique_ptr<mlir::Pass> createAssignStorage(const TrainingSpec &spec);
std::unique_ptr<mlir::Pass> createAssignPrecision(const TrainingSpec &spec);
std::unique_ptr<mlir::Pass> createChunkLogits(int64_t targetBytes,
                                              bool storesGradients = true);
std::unique_ptr<mlir::Pass> createVerifyTrain();

std::unique_ptr<mlir::Pass> createDecomposeComposites();
std::unique_ptr<mlir::Pass> createTrackSamples();
std::unique_ptr<mlir::Pass> createLegalizeForKernels();
std::unique_ptr<mlir::Pass> createFormRegions(bool fuse);
std::unique_ptr<mlir::Pass> createPlaceRecompute(const TrainingSpec &spec);
std::unique_ptr<mlir::Pass> createLowerGraphToPlan();
std::unique_ptr<mlir::Pass> createChainLaunches();
std::unique_ptr<mlir::Pass> createOrderPlan();
std::unique_ptr<mlir::Pass> createStreamOffload();
std::unique_ptr<mlir::Pass> createFuseUpdates();
std::unique_ptr<mlir::Pass> createMergeUpdates();
std::unique_ptr<mlir::Pass> createScheduleCollectives();
std::unique_ptr<mlir::Pass> createPlanMemory();
std::unique_ptr<mlir::Pass> createPredictTimes();
std::unique_ptr<mlir::Pass> createVerifyPlan();

} // namespace sluice
