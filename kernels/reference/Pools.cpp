#include "kernels/reference/Pools.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sluice::reference {
namespace {

int64_t volume(const int64_t (&d)[3]) { return d[0] * d[1] * d[2]; }

/// Calls body(x index or -1 for padding, y index) for each position of each window;
/// positions beyond the pads are skipped.
template <typename Body> void forEachPosition(const PoolParams &p, Body body) {
  int64_t outSize = volume(p.out), positions = volume(p.kernel);
  for (int64_t o = 0; o < p.planes * outSize; ++o)
    for (int64_t k = 0; k < positions; ++k) {
      int64_t at[3] = {o % outSize / p.out[2] / p.out[1], o / p.out[2] % p.out[1],
                       o % p.out[2]};
      int64_t position[3] = {k / p.kernel[2] / p.kernel[1], k / p.kernel[2] % p.kernel[1],
                             k % p.kernel[2]};
      int64_t index = o / outSize;
      bool inside = true, counted = true;
      for (int d = 0; d < 3; ++d) {
        int64_t i = at[d] * p.stride[d] + position[d] * p.dilation[d] - p.pad[d];
        inside &= i >= 0 && i < p.in[d];
        counted &= i < p.in[d] + p.padEnd[d];
        index = index * p.in[d] + i;
      }
      if (counted)
        body(inside ? index : -1, o);
    }
}

std::vector<double> counts(const PoolParams &p) {
  std::vector<double> n(p.planes * volume(p.out));
  forEachPosition(p, [&](int64_t x, int64_t y) { n[y] += p.countIncludePad || x >= 0; });
  return n;
}

/// x index of the first maximum of every window.
std::vector<int64_t> maxima(const PoolParams &p, const float *x) {
  std::vector<int64_t> at(p.planes * volume(p.out), -1);
  forEachPosition(p, [&](int64_t i, int64_t o) {
    if (i < 0)
      return;
    if (at[o] < 0 || x[i] > x[at[o]] || (std::isnan(x[i]) && !std::isnan(x[at[o]])))
      at[o] = i;
  });
  return at;
}

} // namespace

void maxPool(const PoolParams &p, const float *x, double *y) {
  auto at = maxima(p, x);
  for (size_t o = 0; o < at.size(); ++o)
    y[o] = at[o] < 0 ? -std::numeric_limits<double>::infinity() : x[at[o]];
}

void maxPoolGrad(const PoolParams &p, const float *x, const float *dy, double *dx) {
  std::fill_n(dx, p.planes * volume(p.in), 0.0);
  auto at = maxima(p, x);
  for (size_t o = 0; o < at.size(); ++o)
    if (at[o] >= 0)
      dx[at[o]] += dy[o];
}

void avgPool(const PoolParams &p, const float *x, double *y) {
  auto n = counts(p);
  std::fill_n(y, n.size(), 0.0);
  forEachPosition(p, [&](int64_t i, int64_t o) {
    if (i >= 0)
      y[o] += x[i] / n[o];
  });
}

void avgPoolGrad(const PoolParams &p, const float *dy, double *dx) {
  auto n = counts(p);
  std::fill_n(dx, p.planes * volume(p.in), 0.0);
  forEachPosition(p, [&](int64_t i, int64_t o) {
    if (i >= 0)
      dx[i] += dy[o] / n[o];
  });
}

} // namespace sluice::reference
