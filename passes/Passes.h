#pragma once
// How to make each pass. What a pass does stands in Passes.td; the spec must outlive the
// pass.

#include "ir/graph/Graph.h"

#include "mlir/Pass/Pass.h"

#include <memory>

namespace sluice {
struct TrainingSpec;

std::unique_ptr<mlir::Pass> createAssignGroups(const TrainingSpec &spec);
std::unique_ptr<mlir::Pass> createBuildLoss(const TrainingSpec &spec);
std::unique_ptr<mlir::Pass> createBuildBackward(const TrainingSpec &spec);
std::unique_ptr<mlir::Pass> createBuildUpdate(const TrainingSpec &spec);
std::unique_ptr<mlir::Pass> createBuildEntries(const TrainingSpec &spec);
std::unique_ptr<mlir::Pass> createVerifyTrain();

} // namespace sluice
