#pragma once
// What `sluice compile` says about a plan.

#include "codegen/Compile.h"

namespace sluice {

/// Fills the report from a planned module, and adds the lines that the plan file carries
/// to `graph.report`.
void reportPlan(mlir::ModuleOp module, CompileReport &report);

/// Refuses a plan over the budget: the smallest budget that can be met, and what fills
/// it.
Status checkBudget(const CompileReport &report);

} // namespace sluice
