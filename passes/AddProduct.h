#pragma once
// A product that is added to what its result's bytes hold: graph.region(lhs, rhs, sum)
// with `kernel = "add_product"` around a contraction and an addition. Its bits are those
// of the kernel that goes on with the next blocks of a longer sum (GemmParams.h).

#include "ir/graph/GraphBuilder.h"

namespace sluice {

/// sum + contract(lhs, rhs) over the first dimension of both, which have two.
mlir::Value createAddProduct(graph::GraphBuilder &b, mlir::Value lhs, mlir::Value rhs,
                             mlir::Value sum);

/// The contraction inside; null for other operations.
graph::ContractOp addedProduct(mlir::Operation *op);

/// The operand that the product is added to.
inline constexpr unsigned addedSum = 2;

} // namespace sluice
