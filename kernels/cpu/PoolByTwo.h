#pragma once
// The pool of nearly every small CNN: 2 x 2 windows, stride 2, nothing padded. Eight
// outputs at a time.

#include "kernels/PoolParams.h"
#include "kernels/cpu/Vector.h"

namespace sluice::SLUICE_LEVEL {

SLUICE_INLINE bool isPoolByTwo(const PoolParams &p) {
  bool plain = p.in[0] == 1 && p.out[0] == 1 && p.kernel[0] == 1 && p.pad[0] == 0;
  for (int d = 1; d < 3; ++d)
    plain &= p.kernel[d] == 2 && p.stride[d] == 2 && p.dilation[d] == 1 &&
             p.pad[d] == 0 && 2 * p.out[d] <= p.in[d];
  return plain;
}

/// Eight outputs of a row, or as many as a short row has.
struct Eight {
  int64_t first;
  __m256i outputs, low,
      high; ///< masks of the outputs and of the two halves of their inputs
};

SLUICE_INLINE __m256i firstLanes(int64_t n) {
  __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane);
}

/// Even and odd elements of 16 floats.
SLUICE_INLINE void loadPairs(const float *x, const Eight &e, __m256 &even, __m256 &odd) {
  __m256 a = _mm256_maskload_ps(x, e.low), b = _mm256_maskload_ps(x + 8, e.high);
  auto inOrder = [](__m256 v) {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xD8));
  };
  even = inOrder(_mm256_shuffle_ps(a, b, 0x88));
  odd = inOrder(_mm256_shuffle_ps(a, b, 0xDD));
}

SLUICE_INLINE void storePairs(float *x, const Eight &e, __m256 even, __m256 odd) {
  __m256 low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
  _mm256_maskstore_ps(x, e.low, _mm256_permute2f128_ps(low, high, 0x20));
  _mm256_maskstore_ps(x + 8, e.high, _mm256_permute2f128_ps(low, high, 0x31));
}

/// Where v is greater than best or the first NaN.
SLUICE_INLINE __m256 isBetter(__m256 v, __m256 best) {
  __m256 wins =
      _mm256_or_ps(_mm256_cmp_ps(v, best, _CMP_GT_OQ), _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  return _mm256_and_ps(wins, _mm256_cmp_ps(best, best, _CMP_ORD_Q));
}

/// Calls body(Eight) for runs that cover [0, n); the last of a long row may overlap the
/// one before.
template <typename Body> SLUICE_INLINE void byEight(int64_t n, Body body) {
  int64_t count = least(n, 8);
  Eight e{0, firstLanes(count), firstLanes(2 * count), firstLanes(2 * count - 8)};
  for (; e.first + 8 <= n; e.first += 8)
    body(e);
  if (e.first < n) {
    e.first = most(0, n - 8);
    body(e);
  }
}

static inline void maxPoolByTwo(const PoolParams &p, const float *x, float *y) {
  for (int64_t o = 0; o < p.out[1]; ++o, x += 2 * p.in[2], y += p.out[2])
    byEight(p.out[2], [&](const Eight &e) {
      int64_t i = e.first;
      __m256 v[4];
      loadPairs(x + 2 * i, e, v[0], v[1]);
      loadPairs(x + p.in[2] + 2 * i, e, v[2], v[3]);
      __m256 best = v[0];
      for (int k = 1; k < 4; ++k)
        best = _mm256_blendv_ps(best, v[k], isBetter(v[k], best));
      _mm256_maskstore_ps(y + i, e.outputs, best);
    });
}

/// dx is written where a window lies; the rest must be 0 already.
static inline void maxPoolGradByTwo(const PoolParams &p, const float *x, const float *dy,
                                    float *dx) {
  for (int64_t o = 0; o < p.out[1];
       ++o, x += 2 * p.in[2], dx += 2 * p.in[2], dy += p.out[2])
    byEight(p.out[2], [&](const Eight &e) {
      int64_t i = e.first;
      __m256 v[4], g = _mm256_maskload_ps(dy + i, e.outputs), share[4];
      loadPairs(x + 2 * i, e, v[0], v[1]);
      loadPairs(x + p.in[2] + 2 * i, e, v[2], v[3]);
      __m256 best = v[0];
      share[0] = g;
      for (int k = 1; k < 4; ++k) {
        __m256 better = isBetter(v[k], best);
        best = _mm256_blendv_ps(best, v[k], better);
        share[k] = _mm256_and_ps(better, g);
        for (int earlier = 0; earlier < k; ++earlier)
          share[earlier] = _mm256_andnot_ps(better, share[earlier]);
      }
      storePairs(dx + 2 * i, e, share[0], share[1]);
      storePairs(dx + p.in[2] + 2 * i, e, share[2], share[3]);
    });
}

} // namespace sluice::SLUICE_LEVEL
