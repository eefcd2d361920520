#pragma once
// What an output unit of a weight is: the elements that one output sums over.

#include "ir/graph/Graph.h"

#include <optional>

namespace sluice {

/// The dimensions that a unit of the parameter extends along, as `markClipUnits` has
/// noted them; nothing for parameters that are not clipped by unit.
std::optional<llvm::SmallVector<int64_t>> clipUnitAxes(graph::ParameterOp parameter);

} // namespace sluice
