#pragma once
// Tensors of the state that ranks hold in shards: which elements of the whole tensor a
// rank has. Rows are dealt out in order, as evenShard does it; a rank that has a row less
// than others has room for it all the same, with nothing in it.

#include "runtime/Plan.h"
#include "runtime/Status.h"
#include "runtime/comm/Communicator.h"

#include <vector>

namespace sluice {

inline bool isShard(const fbs::StateTensor &tensor) { return tensor.shard_rows() > 0; }

/// The shape of the whole: what checkpoints and other plans know.
inline const flatbuffers::Vector<int64_t> *wholeShape(const fbs::StateTensor &tensor) {
  return isShard(tensor) ? tensor.whole() : tensor.shape();
}
std::vector<int64_t> wholeShapeOf(const fbs::StateTensor &tensor);

/// Elements of the whole.
uint64_t wholeElements(const fbs::StateTensor &tensor);

/// The own elements, which lie at the front of the tensor: all, of what is no shard.
ElementRange ownElements(const Plan &plan, const fbs::StateTensor &tensor, int rank);

/// A shard fits its whole, and is one of the state that optimizers keep.
Status checkShard(const fbs::Plan &plan, const fbs::StateTensor &tensor);

} // namespace sluice
