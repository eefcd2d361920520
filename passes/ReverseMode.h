#pragma once
// Reverse accumulation over one entry.

#include "ir/graph/Graph.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"

namespace sluice {

/// Builds the gradient of a scalar with respect to trainable parameters, before the
/// entry's return.
class ReverseMode {
public:
  explicit ReverseMode(mlir::func::FuncOp entry) : entry(entry) {}
  /// `seed`: the gradient of the loss itself, 1 where it is null. Fails after reporting
  /// every operation on the way that has no gradient.
  mlir::LogicalResult run(mlir::Value loss, mlir::Value seed = {});
  /// The gradient by symbol of the parameter; parameters without influence are absent.
  const llvm::StringMap<mlir::Value> &gradients() const { return bySymbol; }

private:
  void findActive();
  mlir::LogicalResult propagate(mlir::Operation *op, mlir::OpBuilder &builder);
  void accumulate(mlir::Value value, mlir::Value part, mlir::OpBuilder &builder);
  void reportMissing();

  mlir::func::FuncOp entry;
  llvm::DenseSet<mlir::Value> active; // depends on a trainable parameter
  llvm::DenseMap<mlir::Value, mlir::Value> cotangents;
  llvm::StringMap<mlir::Value> bySymbol;
  llvm::SmallVector<mlir::Operation *> missing;
};

} // namespace sluice
