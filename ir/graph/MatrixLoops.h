#pragma once
// The inner loops of the reference products, in double: plain C++, compiled with full
// optimisation.

#include <cstdint>

namespace sluice::graph {

/// c[m, n] += a[m, k] b[k, n], all row-major and dense. Each element is one sum in order
/// of k.
void multiplyAccumulate(double *c, const double *a, const double *b, int64_t m, int64_t n,
                        int64_t k);

} // namespace sluice::graph
