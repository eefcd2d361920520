#pragma once
// The name of a region's kernel.

#include "passes/RegionDomain.h"

#include <string>

namespace sluice {

/// The same for regions with the same body and types, wherever they are.
std::string regionSymbol(graph::RegionOp region, WalkKind kind);

} // namespace sluice
