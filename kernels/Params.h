#pragma once
// Parameters of every hand-written kernel. The compiler fills a struct and stores
// packParams(it) in the plan; the kernel reads the same struct. Units, chunks and
// workspaces follow from shapes, never from the number of threads.

#include "kernels/AttentionParams.h"
#include "kernels/ConvParams.h"
#include "kernels/CtcParams.h"
#include "kernels/GemmParams.h"
#include "kernels/MoveParams.h"
#include "kernels/PoolParams.h"

#include <cstring>
#include <vector>

namespace sluice {

template <typename P> std::vector<int64_t> packParams(const P &p) {
  static_assert(sizeof(P) % sizeof(int64_t) == 0);
  std::vector<int64_t> out(sizeof(P) / sizeof(int64_t));
  std::memcpy(out.data(), &p, sizeof(P));
  return out;
}

template <typename P> P unpackParams(const int64_t *params) {
  P p;
  std::memcpy(static_cast<void *>(&p), params, sizeof(P));
  return p;
}

} // namespace sluice
