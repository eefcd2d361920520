#pragma once
// What `sluice compile` says about a plan.

#include "codegen/Compile.h"

namespace sluice {
struct BudgetChoice;

/// Of a program: no plan under the budget can be predicted faster. Absent: this is the
/// only plan there is.
inline constexpr llvm::StringLiteral boundUsAttr = "bound_us";

/// Fills the report from a planned module, and adds the lines that the plan file carries
/// to `graph.report`. `choice`: what the search for a budget found, or null.
void reportPlan(mlir::ModuleOp module, const BudgetChoice *choice, CompileReport &report);

/// Refuses a plan over the budget: the smallest budget that can be met, and what fills
/// it. `byRule`: what runs again does not follow from the budget.
Status checkBudget(const CompileReport &report, bool byRule);

/// Only the bytes and the predicted times of a planned module.
void describePlan(mlir::ModuleOp module, CompileReport &report);

} // namespace sluice
