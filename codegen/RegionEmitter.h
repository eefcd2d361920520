#pragma once
// Writes the kernel of a region.

#include "ir/graph/Graph.h"

#include <cstdint>
#include <string>

namespace sluice {

/// A function of the kernel module with the calling convention of kernels/Kernel.h. Its
/// buffers are the region's inputs, its outputs, and if `scratchBytes` > 0 a workspace of
/// that size for each worker (the worker's own slice: the kernel adds nothing to the
/// address). It takes no params, but that of an elastic region the number of elements:
/// `units` and `chunk` are not for it.
struct GeneratedKernel {
  std::string symbol;
  int64_t units = 0;
  int64_t chunk = 1; // units per chunk
  int64_t scratchBytes = 0;
};

/// Adds the kernel to `kernels`, unless an identical region is there. Emits an error at
/// the region if it cannot be one kernel. Not from within a pass on several threads: it
/// loads dialects.
mlir::FailureOr<GeneratedKernel> emitRegion(graph::RegionOp region,
                                            mlir::ModuleOp kernels);

} // namespace sluice
