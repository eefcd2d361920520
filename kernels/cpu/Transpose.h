#pragma once
// Transposes in registers, from elements of any format to f32.

#include "kernels/cpu/Half.h"

namespace sluice::SLUICE_LEVEL {

/// 4 rows of 4, `stride` apart, become 4 rows of 4, `width` apart.
template <typename S = F32>
SLUICE_INLINE void transpose4x4(const typename S::Element *from, int64_t stride,
                                float *to, int64_t width) {
  __m128 r0 = S::load4(from), r1 = S::load4(from + stride);
  __m128 r2 = S::load4(from + 2 * stride), r3 = S::load4(from + 3 * stride);
  _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
  _mm_storeu_ps(to, r0);
  _mm_storeu_ps(to + width, r1);
  _mm_storeu_ps(to + 2 * width, r2);
  _mm_storeu_ps(to + 3 * width, r3);
}

/// The same 8 x 8.
template <typename S = F32>
SLUICE_INLINE void transpose8x8(const typename S::Element *from, int64_t stride,
                                float *to, int64_t width) {
  __m256 r[8], t[8];
  // Halves of rows i and i + 4, so that only in-lane shuffles are left.
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i)
    S::loadPair(from + i * stride, from + (i + 4) * stride, r[i], r[i + 4]);
#pragma GCC unroll 2
  for (int h = 0; h < 8; h += 4) {
    t[h] = _mm256_unpacklo_ps(r[h], r[h + 1]);
    t[h + 1] = _mm256_unpackhi_ps(r[h], r[h + 1]);
    t[h + 2] = _mm256_unpacklo_ps(r[h + 2], r[h + 3]);
    t[h + 3] = _mm256_unpackhi_ps(r[h + 2], r[h + 3]);
    _mm256_storeu_ps(to + h * width, _mm256_shuffle_ps(t[h], t[h + 2], 0x44));
    _mm256_storeu_ps(to + (h + 1) * width, _mm256_shuffle_ps(t[h], t[h + 2], 0xEE));
    _mm256_storeu_ps(to + (h + 2) * width, _mm256_shuffle_ps(t[h + 1], t[h + 3], 0x44));
    _mm256_storeu_ps(to + (h + 3) * width, _mm256_shuffle_ps(t[h + 1], t[h + 3], 0xEE));
  }
}

/// 8 x 8 elements of two bytes, rows `stride` apart, `width` apart after.
SLUICE_INLINE void transposeHalves8x8(const uint16_t *from, int64_t stride, uint16_t *to,
                                      int64_t width) {
  __m128i r[8], pairs[8], fours[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i)
    r[i] = load16Bytes(from + i * stride);
  // Rows i and i + 4 interleaved three times leave columns in order.
  auto interleave = [](const __m128i(&a)[8], __m128i(&b)[8]) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      b[2 * i] = _mm_unpacklo_epi16(a[i], a[i + 4]);
      b[2 * i + 1] = _mm_unpackhi_epi16(a[i], a[i + 4]);
    }
  };
  interleave(r, pairs);
  interleave(pairs, fours);
  interleave(fours, r);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i)
    _mm_storeu_si128(reinterpret_cast<__m128i *>(to + i * width), r[i]);
}

} // namespace sluice::SLUICE_LEVEL
