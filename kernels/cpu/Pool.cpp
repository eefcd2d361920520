// Pools.

#include "kernels/PoolParams.h"
#include "kernels/cpu/Kernels.h"
#include "kernels/cpu/PoolByTwo.h"
#include "kernels/cpu/Window.h"

namespace sluice::SLUICE_LEVEL {
namespace {

constexpr float kLowest = -__builtin_inff();

SLUICE_INLINE int64_t volume(const int64_t (&d)[3]) { return d[0] * d[1] * d[2]; }

SLUICE_INLINE void fillFloats(float *to, float value, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    to[i] = value;
}

SLUICE_INLINE bool wins(float v, float best) { return v > best || v != v; }

/// Calls body with the stride as a constant where that lets the loop run in vectors.
template <typename Body> SLUICE_INLINE void byStride(int64_t stride, Range r, Body body) {
  if (stride == 1)
    for (int64_t i = r.low; i < r.high; ++i)
      body(i, i);
  else if (stride == 2)
    for (int64_t i = r.low; i < r.high; ++i)
      body(i, 2 * i);
  else
    for (int64_t i = r.low; i < r.high; ++i)
      body(i, stride * i);
}

/// Kernel positions of the first maxima of a block, -1 where nothing is inside. A NaN
/// found first stays.
void firstMaxima(const PoolParams &p, const Block &b, const float *x, int32_t *at) {
  alignas(64) float best[kWindowBlock];
  for (int64_t i = 0; i < b.count; ++i) {
    best[i] = kLowest;
    at[i] = -1;
  }
  forEachPosition(p, b, [&](int64_t k, int64_t start, Range inside) {
    const float *from = x + start;
    int32_t position = static_cast<int32_t>(k);
    byStride(p.stride[2], inside, [&](int64_t i, int64_t j) {
      float v = from[j];
      bool better = (at[i] < 0) | (((v > best[i]) | (v != v)) & (best[i] == best[i]));
      best[i] = better ? v : best[i];
      at[i] = better ? position : at[i];
    });
  });
}

/// Kernel positions an average counts along d.
SLUICE_INLINE int64_t countOf(const PoolParams &p, int d, int64_t o) {
  if (!p.countIncludePad) {
    Range r = positionsInside(p, d, o);
    return r.high - r.low;
  }
  int64_t start = o * p.stride[d] - p.pad[d], end = p.in[d] + p.padEnd[d];
  if (start + (p.kernel[d] - 1) * p.dilation[d] < end)
    return p.kernel[d];
  return end <= start ? 0 : least(p.kernel[d], ceilDiv(end - start, p.dilation[d]));
}

/// to[i] = from[i] / elements of the window, 0 for an empty one.
void divideByCounts(const PoolParams &p, const Block &b, const float *from, float *to) {
  int64_t rows = countOf(p, 0, b.row0) * countOf(p, 1, b.row1);
  for (int64_t i = 0; i < b.count; ++i) {
    int64_t n = rows * countOf(p, 2, b.first + i);
    to[i] = n ? from[i] / static_cast<float>(n) : 0;
  }
}

} // namespace

void maxPool(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
             int64_t) {
  auto p = readParams<PoolParams>(params);
  int64_t inSize = volume(p.in), outSize = volume(p.out);
  if (outSize == 0)
    return;
  bool byTwo = isPoolByTwo(p);
  for (int64_t u = begin; u < end; ++u) {
    auto *x = static_cast<const float *>(buffers[0]) + u * inSize;
    auto *y = static_cast<float *>(buffers[1]) + u * outSize;
    if (byTwo) {
      maxPoolByTwo(p, x, y);
      continue;
    }
    forEachBlock(p, [&](const Block &b) {
      alignas(64) float best[kWindowBlock];
      fillFloats(best, kLowest, b.count);
      forEachPosition(p, b, [&](int64_t, int64_t start, Range inside) {
        const float *from = x + start;
        byStride(p.stride[2], inside, [&](int64_t i, int64_t j) {
          best[i] = wins(from[j], best[i]) ? from[j] : best[i];
        });
      });
      std::memcpy(y + b.index, best, b.count * sizeof(float));
    });
  }
}

void maxPoolGrad(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
                 int64_t) {
  auto p = readParams<PoolParams>(params);
  int64_t inSize = volume(p.in), outSize = volume(p.out);
  if (inSize == 0)
    return;
  bool byTwo = isPoolByTwo(p);
  for (int64_t u = begin; u < end; ++u) {
    auto *x = static_cast<const float *>(buffers[0]) + u * inSize;
    auto *dy = static_cast<const float *>(buffers[1]) + u * outSize;
    auto *dx = static_cast<float *>(buffers[2]) + u * inSize;
    if (byTwo) {
      if (2 * p.out[1] < p.in[1] || 2 * p.out[2] < p.in[2])
        fillFloats(dx, 0, inSize);
      maxPoolGradByTwo(p, x, dy, dx);
      continue;
    }
    fillFloats(dx, 0, inSize);
    forEachBlock(p, [&](const Block &b) {
      alignas(64) int32_t at[kWindowBlock];
      firstMaxima(p, b, x, at);
      const float *from = dy + b.index;
      forEachPosition(p, b, [&](int64_t k, int64_t start, Range inside) {
        float *to = dx + start;
        byStride(p.stride[2], inside, [&](int64_t i, int64_t j) {
          to[j] += at[i] == static_cast<int32_t>(k) ? from[i] : 0.0f;
        });
      });
    });
  }
}

void avgPool(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
             int64_t) {
  auto p = readParams<PoolParams>(params);
  int64_t inSize = volume(p.in), outSize = volume(p.out);
  if (outSize == 0)
    return;
  for (int64_t u = begin; u < end; ++u) {
    auto *x = static_cast<const float *>(buffers[0]) + u * inSize;
    auto *y = static_cast<float *>(buffers[1]) + u * outSize;
    forEachBlock(p, [&](const Block &b) {
      alignas(64) float sum[kWindowBlock];
      fillFloats(sum, 0, b.count);
      forEachPosition(p, b, [&](int64_t, int64_t start, Range inside) {
        const float *from = x + start;
        byStride(p.stride[2], inside, [&](int64_t i, int64_t j) { sum[i] += from[j]; });
      });
      divideByCounts(p, b, sum, y + b.index);
    });
  }
}

void avgPoolGrad(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
                 int64_t) {
  auto p = readParams<PoolParams>(params);
  int64_t inSize = volume(p.in), outSize = volume(p.out);
  if (inSize == 0)
    return;
  for (int64_t u = begin; u < end; ++u) {
    auto *dy = static_cast<const float *>(buffers[0]) + u * outSize;
    auto *dx = static_cast<float *>(buffers[1]) + u * inSize;
    fillFloats(dx, 0, inSize);
    forEachBlock(p, [&](const Block &b) {
      alignas(64) float share[kWindowBlock];
      divideByCounts(p, b, dy + b.index, share);
      forEachPosition(p, b, [&](int64_t, int64_t start, Range inside) {
        float *to = dx + start;
        byStride(p.stride[2], inside, [&](int64_t i, int64_t j) { to[j] += share[i]; });
      });
    });
  }
}

} // namespace sluice::SLUICE_LEVEL
