#pragma once
// Packing of bf16 operands for dot products of pairs: a word holds two steps of k, the
// earlier one in its upper half, which vdpbf16ps adds first. A last step without a second
// is the f32 that its upper half stands for.

#include "kernels/cpu/Pack.h"

namespace sluice::SLUICE_LEVEL {

/// Words of k steps.
constexpr int64_t pairsOf(int64_t k) { return (k + 1) / 2; }

SLUICE_INLINE uint32_t pairWord(uint16_t earlier, uint16_t later) {
  return static_cast<uint32_t>(earlier) << 16 | later;
}

/// 8 rows of 8 pairs, `stride` elements apart, become 8 rows of 8 words, `width` apart.
SLUICE_INLINE void transposeDots8x8(const uint16_t *from, int64_t stride, uint32_t *to,
                                    int64_t width) {
  // Little-endian memory has the earlier step in the lower half.
  const __m256i swap = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
  __m256i r[8], t[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) { // halves of rows i and i + 4
    const uint16_t *low = from + i * stride, *high = from + (i + 4) * stride;
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h)
      r[i + 4 * h] = _mm256_shuffle_epi8(
          _mm256_inserti128_si256(_mm256_castsi128_si256(load16Bytes(low + 8 * h)),
                                  load16Bytes(high + 8 * h), 1),
          swap);
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

/// `count` elements of two steps side by side.
SLUICE_INLINE void interleaveDots(const uint16_t *earlier, const uint16_t *later,
                                  int64_t count, uint32_t *to) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    auto widened = [&](const uint16_t *p) {
      return _mm512_cvtepu16_epi32(
          _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p + i)));
    };
    _mm512_storeu_si512(
        to + i, _mm512_or_si512(_mm512_slli_epi32(widened(earlier), 16), widened(later)));
  }
  for (; i < count; ++i)
    to[i] = pairWord(earlier[i], later[i]);
}

/// Up to 8 steps of 4 rows, `stride` elements apart, become words, rows of them `width`
/// apart. An odd last step is a word by itself.
SLUICE_INLINE void transposeFourDots(const uint16_t *from, int64_t stride, int64_t steps,
                                     uint32_t *to, int64_t width) {
  const __m128i swap =
      _mm_setr_epi8(2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
  auto inside = static_cast<__mmask8>(lanes(0, least(steps, 8)));
  __m128i r[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
    r[i] = _mm_shuffle_epi8(_mm_maskz_loadu_epi16(inside, from + i * stride), swap);
  __m128i low = _mm_unpacklo_epi32(r[0], r[1]), high = _mm_unpackhi_epi32(r[0], r[1]);
  __m128i low2 = _mm_unpacklo_epi32(r[2], r[3]), high2 = _mm_unpackhi_epi32(r[2], r[3]);
  const __m128i words[4] = {_mm_unpacklo_epi64(low, low2), _mm_unpackhi_epi64(low, low2),
                            _mm_unpacklo_epi64(high, high2),
                            _mm_unpackhi_epi64(high, high2)};
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
    if (2 * i < steps)
      _mm_storeu_si128(reinterpret_cast<__m128i *>(to + i * width), words[i]);
}

/// One panel of `rows` <= Width rows and `k` steps: to[pair * Width + i] of elements
/// from[i * row + step * col]. What is beyond `rows` becomes 0.
template <int Width>
static void packDots(const uint16_t *from, int64_t row, int64_t col, int64_t rows,
                     int64_t k, float *panel) {
  auto *to = reinterpret_cast<uint32_t *>(panel);
  int64_t whole = k / 2, i = 0;
  if (rows < Width)
    std::memset(to, 0, pairsOf(k) * Width * sizeof *to);
  if (row == 1) {
    for (int64_t s = 0; s < whole; ++s)
      interleaveDots(from + 2 * s * col, from + (2 * s + 1) * col, rows, to + s * Width);
    if (k % 2)
      for (; i < rows; ++i)
        to[whole * Width + i] = pairWord(from[i + (k - 1) * col], 0);
    return;
  }
  if (col == 1)
    for (; i + 4 <= rows;) {
      int64_t s = 0, together = i + 8 <= rows ? 8 : 4;
      if (together == 8)
        for (; s + 8 <= whole; s += 8)
          transposeDots8x8(from + i * row + 2 * s, row, to + s * Width + i, Width);
      for (; 2 * s < k; s += 4)
        for (int64_t r = i; r < i + together; r += 4)
          transposeFourDots(from + r * row + 2 * s, row, k - 2 * s, to + s * Width + r,
                            Width);
      i += together;
    }
  for (; i < rows; ++i) {
    for (int64_t s = 0; s < whole; ++s) {
      const uint16_t *pair = from + i * row + 2 * s * col;
      to[s * Width + i] = pairWord(pair[0], pair[col]);
    }
    if (k % 2)
      to[whole * Width + i] = pairWord(from[i * row + (k - 1) * col], 0);
  }
}

/// packDots of elements from[i * row + at[step]], nothing beyond the rows: mostly several
/// steps follow one another in memory.
template <int Width>
static void packDotsAt(const uint16_t *from, int64_t row, const int64_t *at, int64_t rows,
                       int64_t k, float *panel) {
  auto *to = reinterpret_cast<uint32_t *>(panel);
  if (row == 1) {
    for (int64_t kk = 0; kk + 1 < k; kk += 2, to += Width)
      interleaveDots(from + at[kk], from + at[kk + 1], rows, to);
    for (int64_t i = 0; k % 2 && i < rows; ++i)
      to[i] = pairWord(from[at[k - 1] + i], 0);
    return;
  }
  for (int64_t kk = 0; kk < k;) {
    const int64_t *o = at + kk;
    int64_t together = 1;
    while (together < 8 && kk + together < k && o[together] == o[0] + together)
      ++together;
    int64_t i = 0, steps = together == 8 ? 8 : 2;
    constexpr int64_t kAhead = 16;
    if (kk + kAhead < k && o[kAhead] != o[kAhead - steps] + steps)
      fetchAhead(from + o[kAhead], rows * row);
    if (together == 8)
      for (; i + 4 <= rows; i += 4)
        transposeFourDots(from + i * row + o[0], row, 8, to + kk / 2 * Width + i, Width);
    if (rows == Width && steps == 2 && kk + 1 < k) {
      uint32_t *words = to + kk / 2 * Width;
      const uint16_t *earlier = from + o[0], *later = from + o[1];
#pragma GCC unroll 12
      for (int64_t r = 0; r < Width; ++r)
        words[r] = pairWord(earlier[r * row], later[r * row]);
      kk += 2;
      continue;
    }
    for (; i < rows; ++i)
      for (int64_t s = 0; s < steps; s += 2) {
        const uint16_t *element = from + i * row;
        to[(kk + s) / 2 * Width + i] =
            pairWord(element[o[s]], kk + s + 1 < k ? element[o[s + 1]] : 0);
      }
    kk += steps;
  }
}

} // namespace sluice::SLUICE_LEVEL
