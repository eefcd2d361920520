#include "kernels/reference/Products.h"

#include <algorithm>

namespace sluice::reference {
namespace {

/// Calls body(x index, w index, y index) for every product of the convolution.
template <typename Body> void forEachProduct(const ConvGeometry &g, Body body) {
  int64_t cg = g.groups ? g.c / g.groups : 0, mg = g.groups ? g.m / g.groups : 0;
  int64_t inSize = g.in[0] * g.in[1] * g.in[2], outSize = g.out[0] * g.out[1] * g.out[2];
  int64_t taps = g.kernel[0] * g.kernel[1] * g.kernel[2];
  for (int64_t n = 0; n < g.n; ++n)
    for (int64_t m = 0; m < g.m; ++m)
      for (int64_t c = 0; c < cg; ++c)
        for (int64_t t = 0; t < taps; ++t)
          for (int64_t o = 0; o < outSize; ++o) {
            int64_t k[3] = {t / g.kernel[2] / g.kernel[1], t / g.kernel[2] % g.kernel[1],
                            t % g.kernel[2]};
            int64_t p[3] = {o / g.out[2] / g.out[1], o / g.out[2] % g.out[1],
                            o % g.out[2]};
            int64_t at = 0;
            bool inside = true;
            for (int d = 0; d < 3; ++d) {
              int64_t i = p[d] * g.stride[d] + k[d] * g.dilation[d] - g.pad[d];
              inside &= i >= 0 && i < g.in[d];
              at = at * g.in[d] + i;
            }
            if (inside)
              body((n * g.c + m / mg * cg + c) * inSize + at, (m * cg + c) * taps + t,
                   (n * g.m + m) * outSize + o);
          }
}

int64_t volume(const int64_t (&d)[3]) { return d[0] * d[1] * d[2]; }

} // namespace

void gemm(const GemmParams &p, const float *a, const float *b, double *c) {
  for (int64_t b0 = 0; b0 < p.batch0; ++b0)
    for (int64_t b1 = 0; b1 < p.batch1; ++b1)
      for (int64_t i = 0; i < p.m; ++i)
        for (int64_t j = 0; j < p.n; ++j) {
          double sum = 0;
          for (int64_t k = 0; k < p.k; ++k)
            sum += double(a[b0 * p.aBatch0 + b1 * p.aBatch1 + i * p.aRow + k * p.aCol]) *
                   b[b0 * p.bBatch0 + b1 * p.bBatch1 + k * p.bRow + j * p.bCol];
          double &to = c[b0 * p.cBatch0 + b1 * p.cBatch1 + i * p.cRow + j];
          to = p.accumulate ? to + sum : sum;
        }
}

void convForward(const ConvGeometry &g, const float *x, const float *w, double *y) {
  std::fill_n(y, g.n * g.m * volume(g.out), 0.0);
  forEachProduct(g,
                 [&](int64_t i, int64_t k, int64_t o) { y[o] += double(x[i]) * w[k]; });
}

void convInputGrad(const ConvGeometry &g, const float *dy, const float *w, double *dx) {
  std::fill_n(dx, g.n * g.c * volume(g.in), 0.0);
  forEachProduct(g,
                 [&](int64_t i, int64_t k, int64_t o) { dx[i] += double(dy[o]) * w[k]; });
}

void convWeightGrad(const ConvGeometry &g, const float *x, const float *dy, double *dw) {
  std::fill_n(dw, g.groups ? g.m * (g.c / g.groups) * volume(g.kernel) : 0, 0.0);
  forEachProduct(g,
                 [&](int64_t i, int64_t k, int64_t o) { dw[k] += double(x[i]) * dy[o]; });
}

} // namespace sluice::reference
