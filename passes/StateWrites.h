#pragma once
// Decides which operations write their result straight into the state.

#include "ir/graph/Graph.h"

#include "llvm/ADT/MapVector.h"

namespace sluice {

/// The value whose bytes are those of `value`: reshapes are looked through.
mlir::Value storageRoot(mlir::Value value);

/// Roots that are written into the state, with the tensor they become.
using StateTargets = llvm::MapVector<mlir::Value, mlir::FlatSymbolRefAttr>;

/// Every `graph.write` gets a producer that may write the state's own bytes: all readers
/// of the old value come before it in the block, or it is a region that updates element
/// by element. Where that is impossible, a copy at the end is inserted (a `graph.reshape`
/// with `plan.copy`). Results of the function get bytes of their own likewise. Reorders
/// the block, stably.
StateTargets placeStateWrites(mlir::func::FuncOp function);

} // namespace sluice
