#pragma once
// How the threads of CUDA blocks share a region's units.

#include "passes/RegionDomain.h"

namespace sluice::cuda {

/// A unit has `threads` threads: a warp, with several units in a block, or a block. Each
/// thread takes vectors of `width` elements of the last dimension, `threads` vectors
/// apart.
struct BlockLayout {
  static constexpr int64_t warp = 32;

  int64_t width = 1;
  int64_t threads = warp;    // of a unit; Flat: of a block
  int64_t unitsPerBlock = 1; // more than one only for units of a warp
  int64_t columnThreads = 0; // Columns: threads side by side; the others go down the rows
  int64_t reductions = 0;    // of all passes
  int64_t keptBytes = 0;     // of shared memory, for each unit
  int64_t partialBytes = 0;  // of shared memory, for each unit: sums of warps or rows
  int64_t blocks = 0;

  int64_t warps() const { return threads / warp; }
  int64_t rowThreads() const { return threads / columnThreads; }
  int64_t unitBytes() const { return keptBytes + partialBytes; }
  int64_t sharedBytes() const { return unitsPerBlock * unitBytes(); }
};

BlockLayout chooseLayout(llvm::ArrayRef<mlir::Operation *> ops,
                         const RegionDomain &domain);

} // namespace sluice::cuda
