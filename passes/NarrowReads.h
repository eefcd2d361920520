#pragma once
// Values of 16 bits that kernels widen as they read them: the cast before them is no work
// and has no bytes.

#include "ir/graph/Graph.h"

namespace sluice {

/// A cast from 16 bits to f32 that nothing reads but kernels which read 16 bits too: of
/// matrix products, convolutions, average pools and their gradients, and of what is added
/// up by `scatter_add`.
bool isReadNarrow(mlir::Operation *op);
/// Some reader is such a kernel.
bool mayBeReadNarrow(mlir::Operation *op);

/// What a kernel reads for its operand.
mlir::Value narrowSource(mlir::Value value);

} // namespace sluice
