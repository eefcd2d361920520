#pragma once
// Values that the backward part of an entry reads of its forward part, stored in formats.

#include "ir/TrainingSpec.h"
#include "passes/StateSymbols.h"

namespace sluice {

/// Marks operations of the backward part, between BuildBackward and AssignStorage.
inline constexpr llvm::StringLiteral backwardAttr = "graph.backward";

/// By the rules with `saved`: what operations of the backward part read of a value that
/// matches is decoded from its codes. Takes the marks away. Reports what was stored, and
/// fails after an error for a rule that no value is kept for.
mlir::LogicalResult storeSavedValues(mlir::func::FuncOp entry, const TrainingSpec &spec,
                                     StateSymbols &state);

} // namespace sluice
