// Pools.

#include "kernels/PoolParams.h"
#include "kernels/cpu/Kernels.h"
#include "kernels/cpu/PoolByTwo.h"
#include "kernels/cpu/PoolPadded.h"
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
template <typename S>
void firstMaxima(const PoolParams &p, const Block &b, const typename S::Element *x,
                 int32_t *at) {
  alignas(64) float best[kWindowBlock];
  for (int64_t i = 0; i < b.count; ++i) {
    best[i] = kLowest;
    at[i] = -1;
  }
  forEachPosition(p, b, [&](int64_t k, int64_t start, Range inside) {
    auto *from = x + start;
    int32_t position = static_cast<int32_t>(k);
    byStride(p.stride[2], inside, [&](int64_t i, int64_t j) {
      float v = S::load1(from + j);
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

/// The block's part of dy, as f32.
void loadBlock(const Operand &dy, const Block &b, float *to) {
  byFormat(dy.type, [&]<typename S>(S) { widen<S>(dy.as<S>() + b.index, to, b.count); });
}

template <typename S>
void maxPoolPlane(const PoolParams &p, const typename S::Element *x, const Result &y) {
  forEachBlock(p, [&](const Block &b) {
    alignas(64) float best[kWindowBlock];
    fillFloats(best, kLowest, b.count);
    forEachPosition(p, b, [&](int64_t, int64_t start, Range inside) {
      auto *from = x + start;
      byStride(p.stride[2], inside, [&](int64_t i, int64_t j) {
        float v = S::load1(from + j);
        best[i] = wins(v, best[i]) ? v : best[i];
      });
    });
    storeFloats(best, y.at(b.index), b.count);
  });
}

template <typename S>
void maxPoolGradPlane(const PoolParams &p, const typename S::Element *x,
                      const Operand &dy, float *dx) {
  fillFloats(dx, 0, volume(p.in));
  forEachBlock(p, [&](const Block &b) {
    alignas(64) int32_t at[kWindowBlock];
    alignas(64) float from[kWindowBlock];
    firstMaxima<S>(p, b, x, at);
    loadBlock(dy, b, from);
    forEachPosition(p, b, [&](int64_t k, int64_t start, Range inside) {
      float *to = dx + start;
      byStride(p.stride[2], inside, [&](int64_t i, int64_t j) {
        to[j] += at[i] == static_cast<int32_t>(k) ? from[i] : 0.0f;
      });
    });
  });
}

template <typename S>
void avgPoolPlane(const PoolParams &p, const typename S::Element *x, const Result &y) {
  forEachBlock(p, [&](const Block &b) {
    alignas(64) float sum[kWindowBlock];
    fillFloats(sum, 0, b.count);
    forEachPosition(p, b, [&](int64_t, int64_t start, Range inside) {
      auto *from = x + start;
      byStride(p.stride[2], inside,
               [&](int64_t i, int64_t j) { sum[i] += S::load1(from + j); });
    });
    divideByCounts(p, b, sum, sum);
    storeFloats(sum, y.at(b.index), b.count);
  });
}

void avgPoolGradPlane(const PoolParams &p, const Operand &dy, float *dx) {
  fillFloats(dx, 0, volume(p.in));
  forEachBlock(p, [&](const Block &b) {
    alignas(64) float share[kWindowBlock];
    loadBlock(dy, b, share);
    divideByCounts(p, b, share, share);
    forEachPosition(p, b, [&](int64_t, int64_t start, Range inside) {
      float *to = dx + start;
      byStride(p.stride[2], inside, [&](int64_t i, int64_t j) { to[j] += share[i]; });
    });
  });
}

/// Calls body(f32 plane) and rounds what it left there into a plane of dx; that of f32 is
/// written itself.
template <typename Body>
SLUICE_INLINE void throughFloats(const PoolParams &p, const Result &dx, void *workspace,
                                 Body body) {
  if (dx.type == format::kF32)
    return body(dx.as<F32>());
  auto *sums = static_cast<float *>(workspace);
  body(sums);
  storeFloats(sums, dx, volume(p.in));
}

} // namespace

void maxPool(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
             int64_t) {
  auto p = readParams<PoolParams>(params);
  int64_t inSize = volume(p.in), outSize = volume(p.out);
  if (outSize == 0)
    return;
  bool byTwo = isPoolByTwo(p, false), padded = isPaddedPool(p);
  byFormat(p.sourceType, [&]<typename S>(S) {
    for (int64_t u = begin; u < end; ++u) {
      auto *x = static_cast<const typename S::Element *>(buffers[0]) + u * inSize;
      Result y = Result{buffers[1], p.resultType}.at(u * outSize);
      if (byTwo)
        maxPoolByTwo<S>(p, x, y.as<S>());
      else if (padded)
        maxPoolPadded<S>(p, x, y);
      else
        widenedOnce<S>(x, inSize, [&]<typename R>(R, const typename R::Element *plane) {
          maxPoolPlane<R>(p, plane, y);
        });
    }
  });
}

void maxPoolGrad(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
                 int64_t) {
  auto p = readParams<PoolParams>(params);
  int64_t inSize = volume(p.in), outSize = volume(p.out);
  if (inSize == 0)
    return;
  bool byTwo = isPoolByTwo(p, true), padded = isPaddedPool(p);
  byFormat(p.sourceType, [&]<typename S>(S) {
    for (int64_t u = begin; u < end; ++u) {
      auto *x = static_cast<const typename S::Element *>(buffers[0]) + u * inSize;
      Operand dy = Operand{buffers[1], p.dyType}.at(u * outSize);
      Result dx = Result{buffers[2], p.resultType}.at(u * inSize);
      if (byTwo) {
        if (2 * p.out[1] < p.in[1] || 2 * p.out[2] < p.in[2])
          std::memset(dx.data, 0, inSize * formatBytes(dx.type));
        if (dx.type == format::kF32)
          maxPoolGradByTwo<S, F32>(p, x, dy, dx.as<F32>());
        else
          maxPoolGradByTwo<S, S>(p, x, dy, dx.as<S>());
        continue;
      }
      throughFloats(p, dx, p.resultType ? buffers[3] : nullptr, [&](float *sums) {
        if (padded) {
          fillFloats(sums, 0, inSize);
          return maxPoolGradPadded<S>(p, x, dy, sums);
        }
        widenedOnce<S>(x, inSize, [&]<typename R>(R, const typename R::Element *plane) {
          maxPoolGradPlane<R>(p, plane, dy, sums);
        });
      });
    }
  });
}

void avgPool(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
             int64_t) {
  auto p = readParams<PoolParams>(params);
  int64_t inSize = volume(p.in), outSize = volume(p.out);
  if (outSize == 0)
    return;
  byFormat(p.sourceType, [&]<typename S>(S) {
    for (int64_t u = begin; u < end; ++u) {
      auto *x = static_cast<const typename S::Element *>(buffers[0]) + u * inSize;
      Result y = Result{buffers[1], p.resultType}.at(u * outSize);
      widenedOnce<S>(x, inSize, [&]<typename R>(R, const typename R::Element *plane) {
        avgPoolPlane<R>(p, plane, y);
      });
    }
  });
}

void avgPoolGrad(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
                 int64_t) {
  auto p = readParams<PoolParams>(params);
  int64_t inSize = volume(p.in), outSize = volume(p.out);
  if (inSize == 0)
    return;
  for (int64_t u = begin; u < end; ++u) {
    Operand dy = Operand{buffers[0], p.sourceType}.at(u * outSize);
    throughFloats(p, Result{buffers[1], p.resultType}.at(u * inSize),
                  p.resultType ? buffers[2] : nullptr,
                  [&](float *sums) { avgPoolGradPlane(p, dy, sums); });
  }
}

} // namespace sluice::SLUICE_LEVEL
