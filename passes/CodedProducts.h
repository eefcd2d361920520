#pragma once
// Products that read codes of a few bits: the kernel decodes them as it packs its
// operands, so that what they stand for never lies in memory. graph.region(codes, scales,
// ...) with `kernel = "coded_product"` around `dequantize`, what rounds its result to
// bf16, and a contraction.

#include "ir/graph/Graph.h"
#include "kernels/StoredFormats.h"

#include <optional>

namespace sluice {

/// Makes such regions of contractions whose operands are decoded for products alone.
void formCodedProducts(mlir::Block &block);

/// The contraction inside; null for other operations.
graph::ContractOp codedProduct(mlir::Operation *op);

/// An operand of that contraction: what the region reads for it.
struct ProductSource {
  llvm::SmallVector<mlir::Value> inputs; ///< of the region; codes before their scales
  std::optional<StoredFormat> format;    ///< of codes
  llvm::ArrayRef<int64_t> shape;         ///< of the tensor that is coded
};
ProductSource productSource(graph::RegionOp region, mlir::Value operand);

} // namespace sluice
