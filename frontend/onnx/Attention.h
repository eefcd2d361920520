#pragma once
// Attention on heads, as opset 23 and the forms of com.microsoft share it.

#include "frontend/onnx/Node.h"

namespace sluice::frontend {

/// [batch, sequence, heads * size] as [batch, heads, sequence, size] and back.
Value splitHeads(Emitter &e, Value x, int64_t heads);
Value mergeHeads(Emitter &e, Value x);

struct AttentionForm {
  double scale = 0; // 0: 1 / sqrt(head size)
  double softcap = 0;
  bool capsFirst = false; // before masks, as com.microsoft does; opset 23 after them
  bool causal = false;
  int64_t past = 0;    // keys before the first query
  int64_t window = -1; // keys each query sees behind it, itself included; -1: all
  llvm::SmallVector<Value> masks; // added to the scores
  Value sink;    // [heads]: a score that takes its share of the softmax; null: none
  int stage = 0; // of `scores`: product, masked, capped, softmax
};

/// Softmax(q k^T) v of [batch, heads, sequence, size]; key and value heads may be shared.
/// `scores` takes the scores at the stage asked for.
Value attend(Emitter &e, Value q, Value k, Value v, const AttentionForm &form,
             Value *scores = nullptr);

/// Pairs of the first `turned` elements of each head [batch, heads, sequence, size] turn
/// by the angles of the caches [batch or 1, sequence, turned / 2].
Value rotate(Emitter &e, Value x, Value cosine, Value sine, int64_t turned,
             bool interleaved);

} // namespace sluice::frontend
