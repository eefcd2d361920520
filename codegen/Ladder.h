#pragma once
// The memory ladder: the same programs under smaller and smaller budgets in one plan.

#include "codegen/Variants.h"

namespace sluice {

/// Adds the rungs of `memory.ladder`. `variants` are those of rung 0, their modules hold
/// regions; the modules of the others are clones, which `clones` owns. A rung's budget is
/// its share of the spec's, or without one of what a plan that keeps everything needs; a
/// share of 1 then has no budget.
Status addRungs(std::vector<PlannedVariant> &variants, const CompileOptions &options,
                std::vector<mlir::OwningOpRef<mlir::ModuleOp>> &clones);

} // namespace sluice
