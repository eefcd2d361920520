#pragma once
// A valid order of a block's operations.

#include "ir/graph/Graph.h"

#include "llvm/ADT/DenseMap.h"

namespace sluice {

/// Operation -> what must come behind it, beside the users of its results.
using OrderEdges =
    llvm::DenseMap<mlir::Operation *, llvm::SmallVector<mlir::Operation *>>;

/// Moves operations behind those whose results they use and behind what `after` asks for.
/// Kahn's algorithm; among what is ready the first in the old order comes first.
void sortBlock(mlir::Block &block, const OrderEdges &after = OrderEdges());

} // namespace sluice
