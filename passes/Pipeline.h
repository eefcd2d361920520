#pragma once
// The stages of a compilation, in order.

namespace mlir {
class OpPassManager;
}

namespace sluice {
struct OffloadNames;
struct TrainingSpec;

/// From the imported @forward to the entries @step (or @micro and @update), @eval and
/// @infer.
void buildTrainPipeline(mlir::OpPassManager &passes, const TrainingSpec &spec);

/// From the entries to fused regions.
void buildRegionPipeline(mlir::OpPassManager &passes, bool fuse = true);

/// What the spec's memory policy runs again. A budget is met by codegen/BudgetSearch.
void buildDecidePipeline(mlir::OpPassManager &passes, const TrainingSpec &spec);

/// From regions to launches with predicted times, for planners that measure.
void buildMeasurePipeline(mlir::OpPassManager &passes, bool chain);

/// From regions to ordered launches with predicted times.
void buildOrderPipeline(mlir::OpPassManager &passes, bool chain = true);

/// From regions to launches, order, copies to the host and offsets.
void buildPlanPipeline(mlir::OpPassManager &passes, bool chain = true,
                       const OffloadNames *offload = nullptr);

} // namespace sluice
