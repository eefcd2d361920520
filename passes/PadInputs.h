#pragma once
// Inputs that are filled up where the data is smaller than the shapes of the plan.

#include "passes/EntryFunctions.h"

namespace sluice {
struct TrainingSpec;

/// Marks what `pad` names with `graph.fill`, in every entry. Refuses names of no input,
/// and targets whose padding would count in the loss.
mlir::LogicalResult markFilled(mlir::ModuleOp module, const TrainingSpec &spec);

} // namespace sluice
