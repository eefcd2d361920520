#pragma once
// Writes the CUDA kernel of a region.

#include "ir/graph/Graph.h"

#include <cstdint>
#include <string>

namespace sluice::cuda {

/// A kernel of the CUDA module: void symbol(inputs..., outputs...), addresses in global
/// memory at multiples of 16 bytes, launched over `blocks` blocks of `threads` threads
/// with `sharedBytes` of dynamic shared memory.
struct CudaKernel {
  std::string symbol;
  int64_t blocks = 0, threads = 0, sharedBytes = 0;
};

/// Adds the kernel to `kernels`, unless an identical region is there. Emits an error at
/// the region if it cannot be one kernel, or needs more than `mostShared` bytes of shared
/// memory in a block.
mlir::FailureOr<CudaKernel> emitCudaRegion(graph::RegionOp region, mlir::ModuleOp kernels,
                                           int64_t mostShared);

/// Attribute of a kernel in the module: threads of a block, as an array of one.
inline constexpr const char *kernelThreads = "kernel_threads";

/// The name of the dynamic shared memory in the module.
inline constexpr const char *sharedSymbol = "sluice_shared";

} // namespace sluice::cuda
