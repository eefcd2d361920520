// Convolutions with one input channel per group, directly: a product would leave its
// tiles empty.

#include "kernels/ConvParams.h"
#include "kernels/cpu/Kernels.h"
#include "kernels/cpu/Window.h"

namespace sluice::SLUICE_LEVEL {
namespace {

SLUICE_INLINE int64_t volume(const int64_t (&d)[3]) { return d[0] * d[1] * d[2]; }

/// Whether the input gradient is itself a sliding window over dy: with stride 1, by
/// kernel positions mirrored.
bool slidesOverOutputs(const ConvGeometry &g) {
  return g.stride[0] == 1 && g.stride[1] == 1 && g.stride[2] == 1;
}

/// x and y exchanged, and kernel positions from the last: its position k is position taps
/// - 1 - k of g.
ConvGeometry mirrored(const ConvGeometry &g) {
  ConvGeometry r = g;
  for (int d = 0; d < 3; ++d) {
    r.in[d] = g.out[d], r.out[d] = g.in[d];
    r.pad[d] = (g.kernel[d] - 1) * g.dilation[d] - g.pad[d];
  }
  return r;
}

/// As many outputs of a row as are summed in registers.
constexpr int64_t kSlide = 4 * kLanes;

/// y = sums over channels j < count (x planes `xPlane` apart) and kernel positions k of
/// weightOf(j, k) * x.
template <typename WeightOf>
SLUICE_INLINE void slide(const ConvGeometry &g, const Block &b, const float *x,
                         int64_t xPlane, int64_t count, WeightOf weightOf, float *y) {
  Vec sums[4] = {zero(), zero(), zero(), zero()};
  for (int64_t j = 0; j < count; ++j)
    forEachPosition(g, b, [&](int64_t k, int64_t start, Range inside) {
      const float *from = x + j * xPlane + start;
      Vec weight = splat(weightOf(j, k));
#pragma GCC unroll 4
      for (int64_t v = 0; v < 4; ++v)
        if (v * kLanes < b.count) {
          Mask m = lanes(inside.low - v * kLanes, inside.high - v * kLanes);
          sums[v] = fma(weight, load(from + v * kLanes, m), sums[v], m);
        }
    });
#pragma GCC unroll 4
  for (int64_t v = 0; v < 4; ++v)
    if (v * kLanes < b.count)
      store(y + v * kLanes, sums[v], lanes(0, b.count - v * kLanes));
}

/// sums[i % 16] = fma(x[i * stride], dy[i], sums[i % 16]) for i inside, in order.
SLUICE_INLINE void addLanes(const float *x, int64_t stride, const float *dy, Range inside,
                            float *sums) {
  if (stride == 1) {
    for (int64_t i = inside.low / kLanes * kLanes; i < inside.high; i += kLanes) {
      Mask m = lanes(inside.low - i, inside.high - i);
      float *to = sums + i % 16;
      store(to, fma(load(x + i, m), load(dy + i, m), load(to), m));
    }
    return;
  }
  for (int64_t i = inside.low; i < inside.high; ++i)
    sums[i % 16] = __builtin_fmaf(x[i * stride], dy[i], sums[i % 16]);
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
    if (g.stride[2] == 1)
      forEachBlock<kSlide>(g, [&](const Block &b) {
        slide(g, b, x, 0, 1, [&](int64_t, int64_t k) { return w[k]; }, y + b.index);
      });
    else
      forEachBlock(g, [&](const Block &b) {
        alignas(64) float sums[kWindowBlock] = {};
        forEachPosition(g, b, [&](int64_t k, int64_t start, Range inside) {
          for (int64_t i = inside.low; i < inside.high; ++i)
            sums[i] = __builtin_fmaf(w[k], x[start + i * g.stride[2]], sums[i]);
        });
        std::memcpy(y + b.index, sums, b.count * sizeof(float));
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
  bool slides = slidesOverOutputs(g);
  ConvGeometry back = mirrored(g);
  for (int64_t u = begin; u < end; ++u) {
    auto *dx = static_cast<float *>(buffers[2]) + u * inSize;
    auto *dy = static_cast<const float *>(buffers[0]) +
               (u / g.c * g.m + u % g.c * per) * outSize;
    auto *w = static_cast<const float *>(buffers[1]) + u % g.c * per * taps;
    if (slides) {
      forEachBlock<kSlide>(back, [&](const Block &b) {
        // Positions of `back` count from the last of g.
        slide(
            back, b, dy, outSize, per,
            [&](int64_t j, int64_t k) { return w[j * taps + taps - 1 - k]; },
            dx + b.index);
      });
      continue;
    }
    for (int64_t i = 0; i < inSize; ++i)
      dx[i] = 0;
    for (int64_t j = 0; j < per; ++j)
      forEachBlock(g, [&](const Block &b) {
        forEachPosition(g, b, [&](int64_t k, int64_t start, Range inside) {
          const float *from = dy + j * outSize + b.index;
          float *to = dx + start, weight = w[j * taps + k];
          for (int64_t i = inside.low; i < inside.high; ++i)
            to[i * g.stride[2]] = __builtin_fmaf(weight, from[i], to[i * g.stride[2]]);
        });
      });
  }
}

void depthwiseWeightGrad(void *const *buffers, const int64_t *params, int64_t begin,
                         int64_t end, int64_t) {
  auto g = readParams<DepthwiseWeightGradParams>(params).g;
  int64_t outSize = volume(g.out), inSize = volume(g.in), taps = volume(g.kernel);
  for (int64_t m = begin; m < end; ++m)
    for (int64_t first = 0; first < taps; first += 16) {
      alignas(64) float sums[16][16] = {};
      for (int64_t n = 0; n < g.n && outSize > 0; ++n) {
        auto *x =
            static_cast<const float *>(buffers[0]) + (n * g.c + m / (g.m / g.c)) * inSize;
        auto *dy = static_cast<const float *>(buffers[1]) + (n * g.m + m) * outSize;
        forEachBlock(g, [&](const Block &b) {
          // Blocks start at multiples of 16.
          forEachPosition(g, b, [&](int64_t k, int64_t start, Range inside) {
            if (k >= first && k < first + 16)
              addLanes(x + start, g.stride[2], dy + b.index, inside, sums[k - first]);
          });
        });
      }
      for (int64_t k = first; k < least(first + 16, taps); ++k) {
        float *last = sums[k - first];
        for (int64_t half = 8; half; half /= 2)
          for (int64_t i = 0; i < half; ++i)
            last[i] += last[i + half];
        static_cast<float *>(buffers[2])[m * taps + k] = last[0];
      }
    }
}

} // namespace sluice::SLUICE_LEVEL
