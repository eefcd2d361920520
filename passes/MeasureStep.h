#pragma once
// What the runs of a training step cost, read off launches of really lowered clones.

#include "passes/StepProblem.h"

namespace sluice {

/// Sets times, workspaces, shared bytes and optional inputs in `step.problem`. `module`
/// is the one that `step` was built on, with its entry only. Then for every solution the
/// predicted time of its plan is at least the one without clones plus `againUs` of each
/// clone: a clone costs no less however it is chained and whatever results it drops.
mlir::LogicalResult measureStep(StepProblem &step, mlir::ModuleOp module, bool chain);

} // namespace sluice
