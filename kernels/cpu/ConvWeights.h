#pragma once
// Packing of a convolution's weights from where they lie, block by block as a product
// goes: panels of 12 channels of the result, [k][12].

#include "kernels/cpu/Pack.h"

namespace sluice::SLUICE_LEVEL {

/// Rows of A where they lie: element k = (channel, tap) of a row is at channel *
/// `channel` and the tap's place in the kernel from the row's begin.
struct WeightRows {
  Operand data;
  int64_t row;     ///< elements between rows
  int64_t channel; ///< and between channels
};

/// Steps of k that memory is asked for ahead.
constexpr int64_t kAhead = 16;

/// Whether the element read kAhead steps on is of no line that is read just before it:
/// taps of a class with a stride share lines.
SLUICE_INLINE bool isFarAhead(const int64_t *at) {
  int64_t apart = at[kAhead] - at[kAhead - 1];
  return apart < -16 || apart > 16;
}

/// Up to 12 rows at the offsets `at`: to[kk * 12 + i], nothing beyond the rows. Taps of a
/// kernel mostly follow one another in memory, or rows do.
template <typename S>
static void packPanelAt(const typename S::Element *from, int64_t row, const int64_t *at,
                        int64_t rows, int64_t k, float *to) {
  if (row == 1) {
    for (int64_t kk = 0; kk < k; ++kk)
      widen<S>(from + at[kk], to + kk * kTileRows, rows);
    return;
  }
  for (int64_t kk = 0; kk < k;) {
    const int64_t *o = at + kk;
    bool together =
        kk + 4 <= k && o[1] == o[0] + 1 && o[2] == o[0] + 2 && o[3] == o[0] + 3;
    int64_t i = 0, steps = together ? 4 : 1;
    if (kk + kAhead < k && (together ? o[kAhead] != o[kAhead - 4] + 4 : isFarAhead(o)))
      fetchAhead(from + o[kAhead], rows * row);
    if (rows == kTileRows && !together) {
      float *step = to + kk * kTileRows;
#pragma GCC unroll 12
      for (int64_t r = 0; r < kTileRows; ++r)
        step[r] = S::load1(from + r * row + o[0]);
      ++kk;
      continue;
    }
    if (together)
      for (; i + 4 <= rows; i += 4)
        transpose4x4<S>(from + i * row + o[0], row, to + kk * kTileRows + i, kTileRows);
    for (; i < rows; ++i)
      for (int64_t s = 0; s < steps; ++s)
        to[(kk + s) * kTileRows + i] = S::load1(from + i * row + o[s]);
    kk += steps;
  }
}

/// Panels of 12 rows one after another, each [k][12] of f32.
SLUICE_INLINE void packWeights(const WeightRows &w, int64_t first, const int64_t *at,
                               int64_t rows, int64_t k, float *to) {
  byFormat(w.data.type, [&]<typename S>(S) {
    auto *from = w.data.as<S>() + first * w.row;
    for (int64_t i = 0; i < rows; i += kTileRows, to += k * kTileRows)
      packPanelAt<S>(from + i * w.row, w.row, at, least(kTileRows, rows - i), k, to);
  });
}

} // namespace sluice::SLUICE_LEVEL
