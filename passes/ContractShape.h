#pragma once
// A contraction as the matrix kernels see it: at most two batch dimensions, M, N and K,
// each with one stride.

#include "ir/graph/Graph.h"
#include "kernels/GemmParams.h"

#include <optional>

namespace sluice {

/// Strides of the dimensions of operands and result, in elements.
struct ContractStrides {
  llvm::SmallVector<int64_t> lhs, rhs, result;
  static ContractStrides contiguous(graph::ContractOp op);
};

/// How the kernels call an element type (kernels/Formats.h); nothing for those they do
/// not multiply.
std::optional<int64_t> formatOf(mlir::Type element);

/// Parameters (sizes, strides and formats; units are left to planGemm) of `op`, or
/// nothing when its dimensions do not collapse that far. The last dimension of N must
/// have stride 1 in the result.
std::optional<GemmParams> contractAsGemm(graph::ContractOp op,
                                         const ContractStrides &strides);
/// The same on contiguous tensors.
std::optional<GemmParams> contractAsGemm(graph::ContractOp op);

/// Strides of a contiguous tensor, in elements.
llvm::SmallVector<int64_t> rowMajorStrides(llvm::ArrayRef<int64_t> shape);

/// Dimensions of an operand of rank `rank` that are in neither list.
llvm::SmallVector<int64_t> freeDims(int64_t rank, llvm::ArrayRef<int64_t> batch,
                                    llvm::ArrayRef<int64_t> contract);

} // namespace sluice
