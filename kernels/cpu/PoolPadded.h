#pragma once
// Maximum pools over planes that fit into 64 KB with their pads, which are -inf: eight
// outputs at a time, without a thought for what is inside. Windows in which nothing is
// above -inf are looked at one by one.

#include "kernels/PoolParams.h"
#include "kernels/cpu/Half.h"
#include "kernels/cpu/Window.h"

namespace sluice::SLUICE_LEVEL {

struct PaddedSize {
  static constexpr int64_t kMost = 16384;
  int64_t rows, width;

  explicit PaddedSize(const PoolParams &p)
      : rows((p.out[1] - 1) * p.stride[1] + (p.kernel[1] - 1) * p.dilation[1] + 1),
        width((ceilDiv(p.out[2], 8) * 8 - 1) * p.stride[2] +
              (p.kernel[2] - 1) * p.dilation[2] + 1 + 8) {}
};

SLUICE_INLINE bool isPaddedPool(const PoolParams &p) {
  bool isPlane = p.in[0] == 1 && p.out[0] == 1 && p.kernel[0] == 1 && p.pad[0] == 0;
  if (!isPlane || p.stride[2] > 2)
    return false;
  for (int d = 1; d < 3; ++d) { // so that sizes are far from overflow
    const int64_t sizes[] = {p.out[d], p.kernel[d], p.stride[d], p.dilation[d]};
    for (int64_t size : sizes)
      if (size < 1 || size > PaddedSize::kMost)
        return false;
  }
  PaddedSize size(p);
  return size.rows <= PaddedSize::kMost && size.width <= PaddedSize::kMost &&
         size.rows * size.width <= PaddedSize::kMost;
}

template <typename S>
static void padPlane(const PoolParams &p, const typename S::Element *x, float *to) {
  const PaddedSize size(p);
  constexpr float kLowest = -__builtin_inff();
  int64_t first = least(p.pad[2], size.width);
  int64_t count = least(p.in[2], size.width - first);
  for (int64_t r = 0; r < size.rows; ++r, to += size.width) {
    int64_t row = r - p.pad[1];
    bool inside = row >= 0 && row < p.in[1] && count > 0;
    int64_t low = inside ? first : size.width, high = inside ? first + count : low;
    for (int64_t i = 0; i < low; ++i)
      to[i] = kLowest;
    if (inside)
      widen<S>(x + row * p.in[2], to + first, count);
    for (int64_t i = high; i < size.width; ++i)
      to[i] = kLowest;
  }
}

/// Eight elements a stride of 1 or 2 apart.
SLUICE_INLINE __m256 loadApart(const float *from, int64_t stride) {
  __m256 a = _mm256_loadu_ps(from);
  if (stride == 1)
    return a;
  __m256 even = _mm256_shuffle_ps(a, _mm256_loadu_ps(from + 8), 0x88);
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(even), 0xD8));
}

/// Calls body(eight elements, elements from the window's begin in x) for the kernel's
/// positions in order, for the windows of outputs (o, i...).
template <typename Body>
SLUICE_INLINE void forEachTapOfEight(const PoolParams &p, const float *plane, int64_t o,
                                     int64_t i, Body body) {
  const PaddedSize size(p);
  const float *window = plane + o * p.stride[1] * size.width + i * p.stride[2];
  for (int64_t k1 = 0; k1 < p.kernel[1]; ++k1)
    for (int64_t k2 = 0; k2 < p.kernel[2]; ++k2) {
      int64_t d1 = k1 * p.dilation[1], d2 = k2 * p.dilation[2];
      body(loadApart(window + d1 * size.width + d2, p.stride[2]), d1 * p.in[2] + d2);
    }
}

SLUICE_INLINE __m256 isNan(__m256 v) { return _mm256_cmp_ps(v, v, _CMP_UNORD_Q); }

template <typename S>
static void maxPoolPadded(const PoolParams &p, const typename S::Element *x,
                          const Result &y) {
  alignas(64) float plane[PaddedSize::kMost];
  padPlane<S>(p, x, plane);
  for (int64_t o = 0; o < p.out[1]; ++o)
    for (int64_t i = 0; i < p.out[2]; i += 8) {
      __m256 best = _mm256_set1_ps(-__builtin_inff());
      forEachTapOfEight(p, plane, o, i, [&](__m256 v, int64_t) {
        __m256 wins = _mm256_or_ps(_mm256_cmp_ps(v, best, _CMP_GT_OQ), isNan(v));
        best = _mm256_blendv_ps(best, v, wins);
      });
      alignas(32) float results[8];
      _mm256_store_ps(results, best);
      storeFloats(results, y.at(o * p.out[2] + i), least(8, p.out[2] - i));
    }
}

/// To the first maximum of each window; a NaN found first stays. dx holds zeros.
template <typename S>
static void maxPoolGradPadded(const PoolParams &p, const typename S::Element *x,
                              const Operand &dy, float *dx) {
  alignas(64) float plane[PaddedSize::kMost];
  padPlane<S>(p, x, plane);
  for (int64_t o = 0; o < p.out[1]; ++o)
    for (int64_t i = 0; i < p.out[2]; i += 8) {
      __m256 best = _mm256_set1_ps(-__builtin_inff());
      __m256i at = _mm256_set1_epi32(-1);
      forEachTapOfEight(p, plane, o, i, [&](__m256 v, int64_t offset) {
        __m256 wins = _mm256_andnot_ps(
            isNan(best), _mm256_or_ps(_mm256_cmp_ps(v, best, _CMP_GT_OQ), isNan(v)));
        best = _mm256_blendv_ps(best, v, wins);
        at = _mm256_blendv_epi8(at, _mm256_set1_epi32(static_cast<int>(offset)),
                                _mm256_castps_si256(wins));
      });
      alignas(32) int32_t winners[8];
      _mm256_store_si256(reinterpret_cast<__m256i *>(winners), at);
      int64_t begin = (o * p.stride[1] - p.pad[1]) * p.in[2] - p.pad[2];
      for (int64_t j = 0; j < 8 && i + j < p.out[2]; ++j) {
        int64_t offset = winners[j];
        if (offset < 0) { // the first position inside, if any
          Range r1 = positionsInside(p, 1, o), r2 = positionsInside(p, 2, i + j);
          if (r1.low >= r1.high || r2.low >= r2.high)
            continue;
          offset = r1.low * p.dilation[1] * p.in[2] + r2.low * p.dilation[2];
        }
        dx[begin + (i + j) * p.stride[2] + offset] += elementOf(dy, o * p.out[2] + i + j);
      }
    }
}

} // namespace sluice::SLUICE_LEVEL
