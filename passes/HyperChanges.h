#pragma once
// The spec's changes of hyper-parameters, as attributes for the plan file.

#include "ir/graph/Graph.h"

namespace sluice {
struct TrainingSpec;

/// Notes `changes` in the groups of `graph.groups` that have the control, and those of no
/// group in `graph.changes`. Refuses what no group has, naming it. The update is built.
mlir::LogicalResult noteHyperChanges(mlir::ModuleOp module, const TrainingSpec &spec);

} // namespace sluice
