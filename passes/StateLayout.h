#pragma once
// The state reservation: the same offsets in every program.

#include "ir/plan/Plan.h"

namespace sluice {

/// Replaces every `graph.parameter` by a `plan.state` with its place. The tensors of a
/// group lie together: parameters (running statistics beside their layer), masters,
/// moments, gradient sums; controls come last.
void layOutState(mlir::ModuleOp module);

} // namespace sluice
