#pragma once
// Attention as exporters write it: product -> scale -> masks -> softmax (-> dropout) ->
// product.

#include "ir/graph/Attention.h"
#include "passes/AttentionMasks.h"

#include <memory>
#include <optional>

namespace sluice {

/// Operands in the order that `graph.attention` wants: views of the model's values.
struct AttentionMatch {
  graph::ContractOp scores, values;
  graph::SoftmaxOp softmax;
  graph::DropoutOp dropout; ///< null without

  /// [B, H, T, D] as a view; where groups of query heads share a key head, with the key
  /// heads there are.
  struct Heads {
    mlir::Value source;
    llvm::SmallVector<int64_t> permutation; ///< of the source, to the order wanted
    bool shared = false; ///< source is [B, G, T, D] of a repeated value
  };
  Heads q, k, v;
  double scale = 1;

  /// One step of the scores, the first first: a mask that is added, or where it is true
  /// (`whereTrue`), or false, scores are `fill`.
  struct Mask {
    mlir::Value value; ///< what is broadcast to the scores
    size_t rank = 4;   ///< theirs: 4, or 3 where batch and heads are one dimension
    bool selects = false, whereTrue = false;
    double fill = 0;
  };
  llvm::SmallVector<Mask> masks;

  /// Batch and heads; heads are 1 where nothing tells them from the batch.
  int64_t batch = 1, heads = 1;

  std::shared_ptr<KnownMasks> known = std::make_shared<KnownMasks>();

  graph::AttentionSizes sizes();
};

/// The attention whose second product is `product`. Nothing where it is another product,
/// where a part of it has other users, or where one operation could not give what these
/// do. `known` is shared by calls between which nothing is erased.
std::optional<AttentionMatch> matchAttention(graph::ContractOp product,
                                             std::shared_ptr<KnownMasks> known);

/// Builds the operation in front of the second product.
graph::AttentionOp buildAttention(AttentionMatch &match);

} // namespace sluice
