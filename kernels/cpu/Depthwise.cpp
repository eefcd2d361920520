// Convolutions with one input channel per group, directly: a product would leave its
// tiles empty. Rows of the result stay in L1 and gain one tap at a time.

#include "kernels/ConvParams.h"
#include "kernels/cpu/Kernels.h"
#include "kernels/cpu/Vector.h"

namespace sluice::SLUICE_LEVEL {
namespace {

SLUICE_INLINE int64_t volume(const int64_t (&d)[3]) { return d[0] * d[1] * d[2]; }

/// Outputs [low, high) whose input i = o * stride + shift lies in [0, size).
struct Range {
  int64_t low, high;
};
SLUICE_INLINE Range insideOf(int64_t size, int64_t outputs, int64_t stride,
                             int64_t shift) {
  int64_t low = shift >= 0 ? 0 : ceilDiv(-shift, stride);
  int64_t high = size - shift <= 0 ? 0 : least(outputs, ceilDiv(size - shift, stride));
  return {least(low, high), high};
}

/// Calls body(tap, x row, y row, shift) for every pair of rows a kernel position joins:
/// taps in order, then rows.
template <typename Body>
SLUICE_INLINE void forEachRowPair(const ConvGeometry &g, Body body) {
  int64_t tap = 0;
  for (int64_t k0 = 0; k0 < g.kernel[0]; ++k0)
    for (int64_t k1 = 0; k1 < g.kernel[1]; ++k1)
      for (int64_t k2 = 0; k2 < g.kernel[2]; ++k2, ++tap) {
        int64_t s0 = k0 * g.dilation[0] - g.pad[0], s1 = k1 * g.dilation[1] - g.pad[1];
        int64_t s2 = k2 * g.dilation[2] - g.pad[2];
        Range r0 = insideOf(g.in[0], g.out[0], g.stride[0], s0);
        Range r1 = insideOf(g.in[1], g.out[1], g.stride[1], s1);
        for (int64_t o0 = r0.low; o0 < r0.high; ++o0)
          for (int64_t o1 = r1.low; o1 < r1.high; ++o1)
            body(tap,
                 ((o0 * g.stride[0] + s0) * g.in[1] + o1 * g.stride[1] + s1) * g.in[2],
                 (o0 * g.out[1] + o1) * g.out[2], s2);
      }
}

/// to[i] = fma(w, from[i * step], to[i])
SLUICE_INLINE void addRow(float *__restrict to, const float *__restrict from, float w,
                          int64_t step, int64_t n) {
  if (step == 1)
    for (int64_t i = 0; i < n; ++i)
      to[i] = __builtin_fmaf(w, from[i], to[i]);
  else
    for (int64_t i = 0; i < n; ++i)
      to[i] = __builtin_fmaf(w, from[i * step], to[i]);
}

SLUICE_INLINE void addStridedRow(float *__restrict to, const float *__restrict from,
                                 float w, int64_t step, int64_t n) {
  if (step == 1)
    return addRow(to, from, w, 1, n);
  for (int64_t i = 0; i < n; ++i)
    to[i * step] = __builtin_fmaf(w, from[i], to[i * step]);
}

/// lanes[o % 16] += x[o] * dy[o] over one row.
SLUICE_INLINE void addLanes(float *__restrict lanes, const float *__restrict x,
                            int64_t step, const float *__restrict dy, Range r) {
  int64_t o = r.low;
  for (; o < r.high && o % 16; ++o)
    lanes[o % 16] = __builtin_fmaf(x[o * step], dy[o], lanes[o % 16]);
  if (step == 1)
    for (; o + 16 <= r.high; o += 16)
      for (int64_t i = 0; i < 16; ++i)
        lanes[i] = __builtin_fmaf(x[o + i], dy[o + i], lanes[i]);
  for (; o < r.high; ++o)
    lanes[o % 16] = __builtin_fmaf(x[o * step], dy[o], lanes[o % 16]);
}

} // namespace

void depthwiseForward(void *const *buffers, const int64_t *params, int64_t begin,
                      int64_t end, int64_t) {
  auto g = readParams<DepthwiseParams>(params).g;
  int64_t outSize = volume(g.out), inSize = volume(g.in), taps = volume(g.kernel);
  if (outSize == 0)
    return;
  for (int64_t u = begin; u < end; ++u) {
    int64_t m = u % g.m, c = m / (g.m / g.c);
    auto *x = static_cast<const float *>(buffers[0]) + (u / g.m * g.c + c) * inSize;
    auto *w = static_cast<const float *>(buffers[1]) + m * taps;
    auto *y = static_cast<float *>(buffers[2]) + u * outSize;
    for (int64_t i = 0; i < outSize; ++i)
      y[i] = 0;
    forEachRowPair(g, [&](int64_t tap, int64_t xRow, int64_t yRow, int64_t shift) {
      Range r = insideOf(g.in[2], g.out[2], g.stride[2], shift);
      if (r.low < r.high)
        addRow(y + yRow + r.low, x + xRow + r.low * g.stride[2] + shift, w[tap],
               g.stride[2], r.high - r.low);
    });
  }
}

void depthwiseInputGrad(void *const *buffers, const int64_t *params, int64_t begin,
                        int64_t end, int64_t) {
  auto g = readParams<DepthwiseParams>(params).g;
  int64_t outSize = volume(g.out), inSize = volume(g.in), taps = volume(g.kernel);
  int64_t per = g.m / g.c;
  if (inSize == 0)
    return;
  for (int64_t u = begin; u < end; ++u) {
    auto *dx = static_cast<float *>(buffers[2]) + u * inSize;
    for (int64_t i = 0; i < inSize; ++i)
      dx[i] = 0;
    for (int64_t j = 0; j < per; ++j) {
      int64_t m = u % g.c * per + j;
      auto *dy = static_cast<const float *>(buffers[0]) + (u / g.c * g.m + m) * outSize;
      auto *w = static_cast<const float *>(buffers[1]) + m * taps;
      forEachRowPair(g, [&](int64_t tap, int64_t xRow, int64_t yRow, int64_t shift) {
        Range r = insideOf(g.in[2], g.out[2], g.stride[2], shift);
        if (r.low < r.high)
          addStridedRow(dx + xRow + r.low * g.stride[2] + shift, dy + yRow + r.low,
                        w[tap], g.stride[2], r.high - r.low);
      });
    }
  }
}

void depthwiseWeightGrad(void *const *buffers, const int64_t *params, int64_t begin,
                         int64_t end, int64_t) {
  auto g = readParams<DepthwiseWeightGradParams>(params).g;
  int64_t outSize = volume(g.out), inSize = volume(g.in), taps = volume(g.kernel);
  for (int64_t m = begin; m < end; ++m) {
    auto *dw = static_cast<float *>(buffers[2]) + m * taps;
    for (int64_t tap = 0; tap < taps; ++tap) {
      ConvGeometry one = g; // a convolution with this tap alone
      int64_t k[3] = {tap / g.kernel[2] / g.kernel[1], tap / g.kernel[2] % g.kernel[1],
                      tap % g.kernel[2]};
      for (int d = 0; d < 3; ++d) {
        one.kernel[d] = 1;
        one.pad[d] = g.pad[d] - k[d] * g.dilation[d];
      }
      float lanes[16] = {};
      for (int64_t n = 0; n < g.n && outSize > 0; ++n) {
        auto *x =
            static_cast<const float *>(buffers[0]) + (n * g.c + m / (g.m / g.c)) * inSize;
        auto *dy = static_cast<const float *>(buffers[1]) + (n * g.m + m) * outSize;
        forEachRowPair(one, [&](int64_t, int64_t xRow, int64_t yRow, int64_t shift) {
          Range r = insideOf(g.in[2], g.out[2], g.stride[2], shift);
          if (r.low < r.high)
            addLanes(lanes, x + xRow + shift, g.stride[2], dy + yRow, r);
        });
      }
      for (int64_t half = 8; half; half /= 2)
        for (int64_t i = 0; i < half; ++i)
          lanes[i] += lanes[i + half];
      dw[tap] = lanes[0];
    }
  }
}

} // namespace sluice::SLUICE_LEVEL
