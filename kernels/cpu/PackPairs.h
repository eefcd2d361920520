#pragma once
// Packing of bf16 operands for tiles: A as tiles of 16 rows of 32 steps of k, B as pairs
// of steps, column by column. What is beyond the operand becomes 0.

#include "kernels/GemmParams.h"
#include "kernels/cpu/Transpose.h"

namespace sluice::SLUICE_LEVEL {

constexpr int64_t kUnitRows = 16; ///< rows of a tile of A and C
constexpr int64_t kUnitK = 32;    ///< steps of k of a tile of A and B
constexpr int64_t kUnitCols = 16; ///< columns of a tile of B and C
constexpr int64_t kPanelCols = gemm::kTileCols;
/// Elements of a tile of A, and of a step of a panel of B (two tiles side by side).
constexpr int64_t kTileElements = kUnitRows * kUnitK;
constexpr int64_t kStepElements = kUnitK * kPanelCols;

/// Elements of bf16; element (i, kk) is data[i * row + kk * col].
struct Halves {
  const uint16_t *data;
  int64_t row, col;
};

/// Up to 16 rows and k <= steps * 32: to[step][16][32].
[[maybe_unused]] static void packTiles(Halves a, int64_t rows, int64_t k, int64_t steps,
                                       uint16_t *to) {
  if (rows < kUnitRows)
    std::memset(to, 0, steps * kTileElements * sizeof *to);
  else if (k < steps * kUnitK)
    std::memset(to + (steps - 1) * kTileElements, 0, kTileElements * sizeof *to);
  for (int64_t kk = 0; kk < k; kk += kUnitK, to += kTileElements) {
    int64_t width = least(kUnitK, k - kk), i = 0;
    const uint16_t *from = a.data + kk * a.col;
    if (a.col == 1 && width == kUnitK) { // a known size is not worth a call
      for (; i < rows; ++i)
        std::memcpy(to + i * kUnitK, from + i * a.row, kUnitK * sizeof *to);
      continue;
    }
    if (a.col == 1) {
      for (; i < rows; ++i)
        std::memcpy(to + i * kUnitK, from + i * a.row, width * sizeof *to);
      continue;
    }
    if (a.row == 1)
      for (; i + 8 <= rows; i += 8) {
        int64_t j = 0;
        for (; j + 8 <= width; j += 8)
          transposeHalves8x8(from + i + j * a.col, a.col, to + i * kUnitK + j, kUnitK);
        for (; j < width; ++j)
          for (int64_t r = i; r < i + 8; ++r)
            to[r * kUnitK + j] = from[r + j * a.col];
      }
    for (; i < rows; ++i)
      for (int64_t j = 0; j < width; ++j)
        to[i * kUnitK + j] = from[i * a.row + j * a.col];
  }
}

/// 8 columns of 8 pairs: pairs of a column follow each other in memory, and columns do
/// after.
SLUICE_INLINE void transposePairs8x8(const uint16_t *from, int64_t stride, uint16_t *to,
                                     int64_t width) {
  __m256i r[8], t[4];
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) { // halves of columns i and i + 4
    const uint16_t *low = from + i * stride, *high = from + (i + 4) * stride;
    for (int h = 0; h < 2; ++h)
      r[i + 4 * h] = _mm256_inserti128_si256(
          _mm256_castsi128_si256(load16Bytes(low + 8 * h)), load16Bytes(high + 8 * h), 1);
  }
#pragma GCC unroll 2
  for (int h = 0; h < 8; h += 4) {
    t[0] = _mm256_unpacklo_epi32(r[h], r[h + 1]);
    t[1] = _mm256_unpackhi_epi32(r[h], r[h + 1]);
    t[2] = _mm256_unpacklo_epi32(r[h + 2], r[h + 3]);
    t[3] = _mm256_unpackhi_epi32(r[h + 2], r[h + 3]);
    const __m256i rows[4] = {
        _mm256_unpacklo_epi64(t[0], t[2]), _mm256_unpackhi_epi64(t[0], t[2]),
        _mm256_unpacklo_epi64(t[1], t[3]), _mm256_unpackhi_epi64(t[1], t[3])};
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      _mm256_storeu_si256(reinterpret_cast<__m256i *>(to + (h + i) * width), rows[i]);
  }
}

/// Columns that are contiguous: two steps interleaved. `high` null: zeros.
SLUICE_INLINE void interleave(const uint16_t *low, const uint16_t *high, int64_t cols,
                              uint16_t *to) {
  int64_t j = 0;
  for (; j + 8 <= cols; j += 8) {
    __m128i a = load16Bytes(low + j);
    __m128i b = high ? load16Bytes(high + j) : _mm_setzero_si128();
    auto *pairs = reinterpret_cast<__m128i *>(to + 2 * j);
    _mm_storeu_si128(pairs, _mm_unpacklo_epi16(a, b));
    _mm_storeu_si128(pairs + 1, _mm_unpackhi_epi16(a, b));
  }
  for (; j < cols; ++j) {
    to[2 * j] = low[j];
    to[2 * j + 1] = high ? high[j] : 0;
  }
}

/// A panel of up to Cols columns (rows of `b`): to[pair][Cols][2], `pairs` * 2 >= k.
template <int64_t Cols = kPanelCols>
static void packPairs(Halves b, int64_t cols, int64_t k, int64_t pairs, uint16_t *to) {
  constexpr int64_t width = 2 * Cols; // of a pair of steps
  if (cols < Cols)
    std::memset(to, 0, pairs * width * sizeof *to);
  else
    std::memset(to + k / 2 * width, 0, (pairs - k / 2) * width * sizeof *to);
  if (b.row == 1) {
    for (int64_t kk = 0; kk < k; kk += 2) {
      const uint16_t *low = b.data + kk * b.col;
      interleave(low, kk + 1 < k ? low + b.col : nullptr, cols, to + kk / 2 * width);
    }
    return;
  }
  int64_t j = 0;
  if (b.col == 1)
    for (; j + 8 <= cols; j += 8) {
      const uint16_t *from = b.data + j * b.row;
      int64_t kk = 0;
      for (; kk + 16 <= k; kk += 16)
        transposePairs8x8(from + kk, b.row, to + kk / 2 * width + 2 * j, width);
      for (; kk < k; ++kk)
        for (int64_t c = 0; c < 8; ++c)
          to[kk / 2 * width + 2 * (j + c) + kk % 2] = from[c * b.row + kk];
    }
  for (; j < cols; ++j)
    for (int64_t kk = 0; kk < k; ++kk)
      to[kk / 2 * width + 2 * j + kk % 2] = b.data[j * b.row + kk * b.col];
}

} // namespace sluice::SLUICE_LEVEL
