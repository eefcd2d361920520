#pragma once
// The pool of nearly every small CNN: 2 x 2 windows, stride 2, nothing padded. Eight
// outputs at a time.

#include "kernels/PoolParams.h"
#include "kernels/cpu/Half.h"

namespace sluice::SLUICE_LEVEL {

/// The result is stored as x is; a gradient may be f32.
SLUICE_INLINE bool isPoolByTwo(const PoolParams &p, bool grad) {
  bool plain = p.sourceType == p.resultType || (grad && p.resultType == format::kF32);
  plain &= p.in[0] == 1 && p.out[0] == 1 && p.kernel[0] == 1 && p.pad[0] == 0;
  for (int d = 1; d < 3; ++d)
    plain &= p.kernel[d] == 2 && p.stride[d] == 2 && p.dilation[d] == 1 &&
             p.pad[d] == 0 && 2 * p.out[d] <= p.in[d];
  return plain;
}

/// Even and odd elements of the first `count` <= 16.
template <typename S>
SLUICE_INLINE void loadPairs(const typename S::Element *x, int64_t count, __m256 &even,
                             __m256 &odd) {
  typename S::Element copy[16];
  if (count < 16) {
    std::memset(copy, 0, sizeof copy);
    for (int64_t i = 0; i < count; ++i)
      copy[i] = x[i];
    x = copy;
  }
  __m256 a = S::load8(x), b = S::load8(x + 8);
  auto inOrder = [](__m256 v) {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xD8));
  };
  even = inOrder(_mm256_shuffle_ps(a, b, 0x88));
  odd = inOrder(_mm256_shuffle_ps(a, b, 0xDD));
}

template <typename S>
SLUICE_INLINE void loadRow(const typename S::Element *x, int64_t count, __m256 &v) {
  typename S::Element copy[8] = {};
  for (int64_t i = 0; i < count; ++i)
    copy[i] = x[i];
  v = S::load8(copy);
}

/// Masked stores are slow on some processors, so what is short goes through a copy.
template <typename S>
SLUICE_INLINE void storeFirst(typename S::Element *x, int64_t count, __m256 v) {
  if (count >= 8)
    return S::store8(x, v);
  typename S::Element copy[8];
  S::store8(copy, v);
  for (int64_t i = 0; i < count; ++i)
    x[i] = copy[i];
}

template <typename S>
SLUICE_INLINE void storePairs(typename S::Element *x, int64_t count, __m256 even,
                              __m256 odd) {
  __m256 low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
  storeFirst<S>(x, count, _mm256_permute2f128_ps(low, high, 0x20));
  storeFirst<S>(x + 8, count - 8, _mm256_permute2f128_ps(low, high, 0x31));
}

/// Where v is greater than best or the first NaN.
SLUICE_INLINE __m256 isBetter(__m256 v, __m256 best) {
  __m256 wins =
      _mm256_or_ps(_mm256_cmp_ps(v, best, _CMP_GT_OQ), _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  return _mm256_and_ps(wins, _mm256_cmp_ps(best, best, _CMP_ORD_Q));
}

/// Calls body(first, count) for runs of eight outputs that cover row `o`, the last of
/// which may overlap the one before. A row shorter than that is one run: of eight, which
/// spill into the next rows of the plane and are overwritten there, or of its own length
/// where they could not be.
template <typename Body>
SLUICE_INLINE void byEight(const PoolParams &p, int64_t o, Body body) {
  int64_t n = p.out[2], i = 0;
  if (n < 8)
    return body(0, n >= 4 && 2 * n == p.in[2] && o + 1 < p.out[1] ? 8 : n);
  for (; i + 8 <= n; i += 8)
    body(i, 8);
  if (i < n)
    body(n - 8, 8);
}

template <typename S>
static void maxPoolByTwo(const PoolParams &p, const typename S::Element *x,
                         typename S::Element *y) {
  for (int64_t o = 0; o < p.out[1]; ++o, x += 2 * p.in[2], y += p.out[2])
    byEight(p, o, [&](int64_t i, int64_t count) {
      __m256 v[4];
      loadPairs<S>(x + 2 * i, 2 * count, v[0], v[1]);
      loadPairs<S>(x + p.in[2] + 2 * i, 2 * count, v[2], v[3]);
      __m256 best = v[0], isNan = _mm256_or_ps(_mm256_cmp_ps(v[0], v[1], _CMP_UNORD_Q),
                                               _mm256_cmp_ps(v[2], v[3], _CMP_UNORD_Q));
      if (_mm256_testz_ps(isNan, isNan)) // the first of equal ones is the second operand
        for (int k = 1; k < 4; ++k)
          best = _mm256_max_ps(v[k], best);
      else
        for (int k = 1; k < 4; ++k)
          best = _mm256_blendv_ps(best, v[k], isBetter(v[k], best));
      storeFirst<S>(y + i, count, best);
    });
}

/// The gradient of windows without a NaN: to the first of what equals the largest.
SLUICE_INLINE void shareOfLargest(const __m256 (&v)[4], __m256 g, __m256 (&share)[4]) {
  __m256 best = _mm256_max_ps(_mm256_max_ps(v[0], v[1]), _mm256_max_ps(v[2], v[3]));
  __m256 left = g;
  for (int k = 0; k < 4; ++k) {
    __m256 is = _mm256_cmp_ps(v[k], best, _CMP_EQ_OQ);
    share[k] = _mm256_and_ps(is, left);
    left = _mm256_andnot_ps(is, left);
  }
}

/// dx is written where a window lies; the rest must be 0 already.
template <typename S, typename R>
static void maxPoolGradByTwo(const PoolParams &p, const typename S::Element *x,
                             Operand dy, typename R::Element *dx) {
  for (int64_t o = 0; o < p.out[1];
       ++o, x += 2 * p.in[2], dx += 2 * p.in[2], dy = dy.at(p.out[2]))
    byEight(p, o, [&](int64_t i, int64_t count) {
      __m256 v[4], share[4], g;
      byFormat(dy.type, [&]<typename D>(D) {
        if (count == 8)
          g = D::load8(dy.as<D>() + i);
        else
          loadRow<D>(dy.as<D>(), count, g);
      });
      loadPairs<S>(x + 2 * i, 2 * count, v[0], v[1]);
      loadPairs<S>(x + p.in[2] + 2 * i, 2 * count, v[2], v[3]);
      __m256 best = v[0], isNan = _mm256_or_ps(_mm256_cmp_ps(v[0], v[1], _CMP_UNORD_Q),
                                               _mm256_cmp_ps(v[2], v[3], _CMP_UNORD_Q));
      if (_mm256_testz_ps(isNan, isNan)) {
        shareOfLargest(v, g, share);
        storePairs<R>(dx + 2 * i, 2 * count, share[0], share[1]);
        return storePairs<R>(dx + p.in[2] + 2 * i, 2 * count, share[2], share[3]);
      }
      share[0] = g;
      for (int k = 1; k < 4; ++k) {
        __m256 better = isBetter(v[k], best);
        best = _mm256_blendv_ps(best, v[k], better);
        share[k] = _mm256_and_ps(better, g);
        for (int earlier = 0; earlier < k; ++earlier)
          share[earlier] = _mm256_andnot_ps(better, share[earlier]);
      }
      storePairs<R>(dx + 2 * i, 2 * count, share[0], share[1]);
      storePairs<R>(dx + p.in[2] + 2 * i, 2 * count, share[2], share[3]);
    });
}

} // namespace sluice::SLUICE_LEVEL
