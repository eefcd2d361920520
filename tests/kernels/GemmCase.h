#pragma once
// Shapes of products and the elements their operands reach.

#include "kernels/Params.h"

#include <initializer_list>
#include <utility>

namespace sluice::test {

inline int64_t reachOf(std::initializer_list<std::pair<int64_t, int64_t>> dims) {
  int64_t last = 0;
  for (auto [count, stride] : dims) {
    if (count == 0)
      return 0;
    last += (count - 1) * stride;
  }
  return last + 1;
}

inline int64_t sizeA(const GemmParams &p) {
  return reachOf(
      {{p.batch0, p.aBatch0}, {p.batch1, p.aBatch1}, {p.m, p.aRow}, {p.k, p.aCol}});
}
inline int64_t sizeB(const GemmParams &p) {
  return reachOf(
      {{p.batch0, p.bBatch0}, {p.batch1, p.bBatch1}, {p.k, p.bRow}, {p.n, p.bCol}});
}
inline int64_t sizeC(const GemmParams &p) {
  return reachOf({{p.batch0, p.cBatch0}, {p.batch1, p.cBatch1}, {p.m, p.cRow}, {p.n, 1}});
}

/// Contiguous operands, A or B transposed in memory if asked.
inline GemmParams product(int64_t m, int64_t n, int64_t k, bool transA = false,
                          bool transB = false, int64_t batch0 = 1, int64_t batch1 = 1) {
  GemmParams p;
  p.m = m, p.n = n, p.k = k, p.batch0 = batch0, p.batch1 = batch1;
  p.aRow = transA ? 1 : k, p.aCol = transA ? m : 1;
  p.bRow = transB ? 1 : n, p.bCol = transB ? k : 1;
  p.cRow = n;
  p.aBatch1 = m * k, p.bBatch1 = n * k, p.cBatch1 = m * n;
  p.aBatch0 = p.aBatch1 * batch1, p.bBatch0 = p.bBatch1 * batch1,
  p.cBatch0 = p.cBatch1 * batch1;
  return p;
}

} // namespace sluice::test
