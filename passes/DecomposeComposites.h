#pragma once
// Composites as core operations.

#include "mlir/IR/Operation.h"

namespace sluice {

/// All composites below an operation, those of decompositions too. Fails after an error.
mlir::LogicalResult decomposeComposites(mlir::Operation *root);

} // namespace sluice
