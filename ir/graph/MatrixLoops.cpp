#include "ir/graph/MatrixLoops.h"

#include <algorithm>

namespace sluice::graph {

void multiplyAccumulate(double *c, const double *a, const double *b, int64_t m, int64_t n,
                        int64_t k) {
  constexpr int64_t columnBlock = 512,
                    depthBlock = 64; // 256 KiB of b stay in the second-level cache
  for (int64_t n0 = 0; n0 < n; n0 += columnBlock)
    for (int64_t k0 = 0; k0 < k; k0 += depthBlock) {
      const int64_t width = std::min(columnBlock, n - n0),
                    depth = std::min(k, k0 + depthBlock);
      for (int64_t i = 0; i < m; ++i) {
        double *__restrict row = c + i * n + n0;
        for (int64_t p = k0; p < depth; ++p) {
          const double factor = a[i * k + p];
          const double *__restrict from = b + p * n + n0;
          for (int64_t j = 0; j < width; ++j)
            row[j] += factor * from[j];
        }
      }
    }
}

} // namespace sluice::graph
