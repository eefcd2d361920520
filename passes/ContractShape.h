#pragma once
// A contraction as the matrix kernels see it: at most two batch dimensions, M, N and K,
// each with one stride.

#include "ir/graph/Graph.h"
#include "kernels/GemmParams.h"

#include <optional>

namespace sluice {

/// Parameters (sizes and strides; units are left to planGemm) of `op` on contiguous
/// operands, or nothing when its dimensions do not collapse that far. `resultStrides`:
/// strides of the result's dimensions when it is not written contiguously (the last
/// dimension of N must have stride 1).
std::optional<GemmParams> contractAsGemm(graph::ContractOp op,
                                         llvm::ArrayRef<int64_t> resultStrides = {});

/// Strides of a contiguous tensor, in elements.
llvm::SmallVector<int64_t> rowMajorStrides(llvm::ArrayRef<int64_t> shape);

/// Dimensions of an operand of rank `rank` that are in neither list.
llvm::SmallVector<int64_t> freeDims(int64_t rank, llvm::ArrayRef<int64_t> batch,
                                    llvm::ArrayRef<int64_t> contract);

} // namespace sluice
