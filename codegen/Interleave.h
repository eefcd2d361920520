#pragma once
// Copies of a loop's body, one instruction of each in turn: a long chain of dependent
// operations (e^x and what it leads to) fills a processor's window, so that the next copy
// would wait for it.

#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace sluice {

/// Copies that neither read what others write nor depend on them, but for operations that
/// an earlier one shares with later ones.
class InterleavedCopies {
public:
  explicit InterleavedCopies(mlir::ImplicitLocOpBuilder &builder) : builder(builder) {}

  /// What is built from here on is the next copy, behind the last one.
  void begin() { before.push_back(lastBuilt()); }
  /// Reorders all of them, unless some contain code of their own.
  void finish();

private:
  mlir::Operation *lastBuilt() const; ///< null: at the block's begin

  mlir::ImplicitLocOpBuilder &builder;
  llvm::SmallVector<mlir::Operation *> before; ///< each copy
};

} // namespace sluice
