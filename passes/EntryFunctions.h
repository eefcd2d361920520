#pragma once
// Named arguments and results of entry points.

#include "ir/graph/Graph.h"

#include <string>
#include <utility>
#include <vector>

namespace sluice {

struct NamedValue {
  std::string name;
  mlir::Value value;
};

inline mlir::func::ReturnOp returnOf(mlir::func::FuncOp entry) {
  return mlir::cast<mlir::func::ReturnOp>(entry.getBody().front().getTerminator());
}
/// The `graph.name` of an argument or result; empty if it has none.
llvm::StringRef argumentName(mlir::func::FuncOp entry, unsigned index);
llvm::StringRef resultName(mlir::func::FuncOp entry, unsigned index);

std::vector<NamedValue> results(mlir::func::FuncOp entry);
/// The value of that name among the results, or null.
mlir::Value resultNamed(mlir::func::FuncOp entry, llvm::StringRef name);
void setResults(mlir::func::FuncOp entry, const std::vector<NamedValue> &values);

/// Copies a function of the module under another name.
mlir::func::FuncOp copyEntry(mlir::func::FuncOp from, llvm::StringRef name);
/// An entry without arguments and results, behind the others.
mlir::func::FuncOp createEntry(mlir::ModuleOp module, llvm::StringRef name);
/// Of an argument that training has alone: what its elements are elsewhere (f64).
inline constexpr llvm::StringLiteral evaluationFillAttr = "graph.evaluation_fill";
/// Replaces what behaves differently in training: dropout, statistics of the batch,
/// arguments that training has alone.
void useEvaluationForms(mlir::func::FuncOp entry);
/// Removes operations without effect, then arguments without a use.
void eraseDead(mlir::func::FuncOp entry);

} // namespace sluice
