#pragma once
// The fixed tree of sums over ranks (Communicator.h), element by element.

#include "runtime/comm/Communicator.h"

namespace sluice {

/// Elements of at most this many bytes at a time: they and what waits in the tree stay in
/// the first-level cache.
constexpr uint64_t sumBlockBytes = 2048;

/// sum = the tree's sum of sources[0 .. ranks), `bytes` <= sumBlockBytes each. `sum` may
/// be one of the sources only when there are no more than 4.
void sumBlock(const uint8_t *const *sources, int ranks, uint8_t *sum, uint64_t bytes,
              SumType type);

} // namespace sluice
