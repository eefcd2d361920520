#pragma once
// Which values an integer input may have, from the tables it indexes.

#include "ir/graph/Graph.h"

namespace sluice {

/// Sets `graph.bounds` of the integer arguments that index a table, directly or through
/// views.
void boundIndexInputs(mlir::func::FuncOp entry);

} // namespace sluice
