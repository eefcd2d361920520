#pragma once
// What `sluice compile` says about a plan.

#include "codegen/Compile.h"

namespace sluice {
/// Of a plan.program: microseconds that no plan under the budget is predicted below.
inline constexpr llvm::StringLiteral boundUsAttr = "bound_us";

struct BudgetChoice;
struct PlannedVariant;

/// Of one planned module; `choice`: what the search for a budget found, or null;
/// `otherBytes`: constants of other variants in the state.
void reportPlan(mlir::ModuleOp module, const BudgetChoice *choice, int64_t otherBytes,
                CompileReport &report);

/// Fills the reports of all variants and of the whole, and adds the lines that the plan
/// file carries. Refuses what does not fit in its budget.
Status reportVariants(llvm::MutableArrayRef<PlannedVariant> variants,
                      const CompileOptions &options, CompileReport &report);

/// Only the bytes and the predicted times of a planned module.
void describePlan(mlir::ModuleOp module, CompileReport &report);

} // namespace sluice
