#pragma once
// Launches that compute a gradient of f32 whose units are tiles of it.

#include "ir/plan/Plan.h"
#include "passes/ElasticRegion.h"

namespace sluice {

/// On launches of a product and the update that consumes it: the gradient's `name` and
/// the `bytes` that are never stored.
inline constexpr llvm::StringLiteral fusedGradientAttr = "fused_gradient";

struct GradientTiles {
  TileParams tiles;
  std::vector<int64_t> params; ///< with which the kernel writes tile by tile
  int64_t chunk = 1;           ///< units
};

/// Of a launch whose only stage is a product, a convolution's weight gradient, the sum of
/// their slices or a sum of rows into a table, and writes all of its result from 0 on;
/// the first is best for what goes through the tiles. None for other launches. With
/// `multiple` all tiles are whole rows, equally many, and hold a multiple of so many
/// elements.
llvm::SmallVector<GradientTiles> gradientTiles(plan::LaunchOp launch,
                                               int64_t multiple = 0);

} // namespace sluice
