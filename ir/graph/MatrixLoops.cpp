#include "ir/graph/MatrixLoops.h"

#include <algorithm>

namespace sluice::graph {

namespace {
constexpr int64_t columnBlock = 512,
                  depthBlock = 64; // 256 KiB of b stay in the second-level cache

/// row[j] += factors[p] * b[p, j], four rows of b at a time; each element sums in order
/// of p.
inline void addRows(double *__restrict row, const double *factors, const double *b,
                    int64_t stride, int64_t width, int64_t depth) {
  int64_t p = 0;
  for (; p + 4 <= depth; p += 4, b += 4 * stride) {
    const double f0 = factors[p], f1 = factors[p + 1], f2 = factors[p + 2],
                 f3 = factors[p + 3];
    const double *__restrict b0 = b, *__restrict b1 = b + stride;
    const double *__restrict b2 = b1 + stride, *__restrict b3 = b2 + stride;
    for (int64_t j = 0; j < width; ++j)
      row[j] = (((row[j] + f0 * b0[j]) + f1 * b1[j]) + f2 * b2[j]) + f3 * b3[j];
  }
  for (; p < depth; ++p, b += stride)
    for (int64_t j = 0; j < width; ++j)
      row[j] += factors[p] * b[j];
}
} // namespace

void multiplyAccumulate(double *c, const double *a, const double *b, int64_t m, int64_t n,
                        int64_t k) {
  for (int64_t n0 = 0; n0 < n; n0 += columnBlock)
    for (int64_t k0 = 0; k0 < k; k0 += depthBlock) {
      const int64_t width = std::min(columnBlock, n - n0),
                    depth = std::min(depthBlock, k - k0);
      for (int64_t i = 0; i < m; ++i)
        addRows(c + i * n + n0, a + i * k + k0, b + k0 * n + n0, n, width, depth);
    }
}

} // namespace sluice::graph
