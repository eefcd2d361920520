#pragma once
// Packing of product operands: panels of `Width` rows of a matrix stored [k][Width], so
// that a step of k reads consecutive floats.

#include "kernels/cpu/Tile.h"

namespace sluice::SLUICE_LEVEL {

/// 4 rows x 4 k from rows `stride` apart to columns of a panel.
template <int Width>
SLUICE_INLINE void transpose4x4(const float *from, int64_t stride, float *to) {
  __m128 r0 = _mm_loadu_ps(from), r1 = _mm_loadu_ps(from + stride);
  __m128 r2 = _mm_loadu_ps(from + 2 * stride), r3 = _mm_loadu_ps(from + 3 * stride);
  _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
  _mm_storeu_ps(to, r0);
  _mm_storeu_ps(to + Width, r1);
  _mm_storeu_ps(to + 2 * Width, r2);
  _mm_storeu_ps(to + 3 * Width, r3);
}

/// 8 rows x 8 k.
template <int Width>
SLUICE_INLINE void transpose8x8(const float *from, int64_t stride, float *to) {
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
    _mm256_storeu_ps(to + h * Width, _mm256_shuffle_ps(t[h], t[h + 2], 0x44));
    _mm256_storeu_ps(to + (h + 1) * Width, _mm256_shuffle_ps(t[h], t[h + 2], 0xEE));
    _mm256_storeu_ps(to + (h + 2) * Width, _mm256_shuffle_ps(t[h + 1], t[h + 3], 0x44));
    _mm256_storeu_ps(to + (h + 3) * Width, _mm256_shuffle_ps(t[h + 1], t[h + 3], 0xEE));
  }
}

/// One panel of `rows` <= Width rows and `k` steps: to[kk * Width + i] = from[i * row +
/// kk * col]. What is beyond `rows` becomes 0.
template <int Width>
static void packPanel(const float *from, int64_t row, int64_t col, int64_t rows,
                      int64_t k, float *to) {
  if (rows < Width)
    std::memset(to, 0, k * Width * sizeof(float));
  if (row == 1 && rows == Width) {
    for (int64_t kk = 0; kk < k; ++kk)
      std::memcpy(to + kk * Width, from + kk * col, Width * sizeof(float));
    return;
  }
  int64_t i = 0;
  if (col == 1) {
    int64_t whole = k / 8 * 8;
    for (; Width % 8 == 0 && i + 8 <= rows; i += 8) {
      for (int64_t kk = 0; kk < whole; kk += 8)
        transpose8x8<Width>(from + i * row + kk, row, to + kk * Width + i);
      for (int64_t kk = whole; kk < k; ++kk)
        for (int64_t j = i; j < i + 8; ++j)
          to[kk * Width + j] = from[j * row + kk];
    }
    whole = k / 4 * 4;
    for (; i + 4 <= rows; i += 4) {
      for (int64_t kk = 0; kk < whole; kk += 4)
        transpose4x4<Width>(from + i * row + kk, row, to + kk * Width + i);
      for (int64_t kk = whole; kk < k; ++kk)
        for (int64_t j = i; j < i + 4; ++j)
          to[kk * Width + j] = from[j * row + kk];
    }
  }
  for (int64_t kk = 0; kk < k; ++kk)
    for (int64_t j = i; j < rows; ++j)
      to[kk * Width + j] = from[j * row + kk * col];
}

/// Panels of 12 rows of A one after another, each [k][12].
SLUICE_INLINE void packRows(const float *a, int64_t row, int64_t col, int64_t rows,
                            int64_t k, float *to) {
  for (int64_t i = 0; i < rows; i += kTileRows, to += k * kTileRows)
    packPanel<kTileRows>(a + i * row, row, col, least(kTileRows, rows - i), k, to);
}

} // namespace sluice::SLUICE_LEVEL
