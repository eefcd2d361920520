#pragma once
// What `sluice compile` says about a plan.

#include "codegen/Compile.h"

namespace sluice {
struct BudgetChoice;

/// Fills the report from a planned module, and adds the lines that the plan file carries
/// to `graph.report`. `choice`: what the search for a budget found, or null.
void reportPlan(mlir::ModuleOp module, const BudgetChoice *choice, CompileReport &report);

/// Refuses a plan over the budget: the smallest budget that can be met, and what fills
/// it. `keepsAll`: the spec rules out that anything runs again.
Status checkBudget(const CompileReport &report, bool keepsAll);

} // namespace sluice
