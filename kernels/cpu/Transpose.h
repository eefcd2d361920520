#pragma once
// Transposes in registers.

#include "kernels/cpu/Vector.h"

namespace sluice::SLUICE_LEVEL {

/// 4 rows of 4, `stride` apart, become 4 rows of 4, `width` apart.
SLUICE_INLINE void transpose4x4(const float *from, int64_t stride, float *to,
                                int64_t width) {
  __m128 r0 = _mm_loadu_ps(from), r1 = _mm_loadu_ps(from + stride);
  __m128 r2 = _mm_loadu_ps(from + 2 * stride), r3 = _mm_loadu_ps(from + 3 * stride);
  _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
  _mm_storeu_ps(to, r0);
  _mm_storeu_ps(to + width, r1);
  _mm_storeu_ps(to + 2 * width, r2);
  _mm_storeu_ps(to + 3 * width, r3);
}

/// The same 8 x 8.
SLUICE_INLINE void transpose8x8(const float *from, int64_t stride, float *to,
                                int64_t width) {
  __m256 r[8], t[8];
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) {
    // Halves of rows i and i + 4, so that only in-lane shuffles are left.
    const float *low = from + i * stride, *high = from + (i + 4) * stride;
    r[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)),
                                _mm_loadu_ps(high), 1);
    r[i + 4] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low + 4)),
                                    _mm_loadu_ps(high + 4), 1);
  }
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

} // namespace sluice::SLUICE_LEVEL
