#pragma once
// Sizes of an attention, for the operation, its gradient and what lowers them.

#include "ir/graph/Graph.h"

namespace sluice::graph {

struct AttentionSizes {
  int64_t batch = 1, heads = 1, kvHeads = 1, queries = 0, keys = 0;
  int64_t depth = 1, valueDepth = 1;
  AttentionSizes() = default;
  AttentionSizes(mlir::Value q, mlir::Value k, mlir::Value v);
  template <class Op>
  explicit AttentionSizes(Op op) : AttentionSizes(op.getQ(), op.getK(), op.getV()) {}
};

/// Floating-point operations of `products` products of scores (2, of the gradient 5), and
/// of the softmax between.
double attentionFlops(const AttentionSizes &sizes, std::optional<int64_t> causal,
                      int64_t products);

} // namespace sluice::graph
