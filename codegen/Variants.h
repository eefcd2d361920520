#pragma once
// The variants of a compilation: a planned module for each bucket of shapes and rung of
// the memory ladder, and what makes them one plan.

#include "codegen/BudgetSearch.h"

#include "mlir/IR/OwningOpRef.h"

namespace sluice {

struct PlannedVariant {
  std::string bucketName; // empty where there is one bucket
  uint32_t bucket = 0, rung = 0;
  double memoryFraction = 1;              // of the rung
  std::optional<int64_t> budgetBytes;     // of this variant's own state and step
  std::optional<int64_t> rungBudgetBytes; // of all that a session on the rung reserves
  mlir::ModuleOp module;                  // planned
  std::optional<BudgetChoice> choice;
  CompileReport report;

  /// "T=64", "T=64@0.8"; "plan" for the only one.
  std::string name() const;
};

/// Refuses imported modules of different buckets whose parameters are not the same
/// tensors, naming the parameter.
Status checkSameState(llvm::ArrayRef<CompileBucket> buckets);

/// Gives the modules one state (the same tensors at the same offsets; constants of all
/// of them behind) and common names of kernels: what has the same name afterwards is the
/// same thing. Refused where the state that trains differs.
Status mergeVariants(llvm::MutableArrayRef<PlannedVariant> variants);

/// Bytes of the state of all modules together.
int64_t stateBytesOf(llvm::ArrayRef<PlannedVariant> variants);

/// Lines "topic: text" of all variants: once what holds for all, else with the name of
/// the variant. The same for pairs (subject, why).
std::vector<std::string> joinedNotes(llvm::ArrayRef<PlannedVariant> variants);
std::vector<std::pair<std::string, std::string>>
joinedDecisions(llvm::ArrayRef<PlannedVariant> variants);

} // namespace sluice
