#pragma once
// Packing of product operands: panels of `Width` rows of a matrix stored [k][Width] in
// f32, so that a step of k reads consecutive floats.

#include "kernels/cpu/Codes.h"
#include "kernels/cpu/Tile.h"
#include "kernels/cpu/Transpose.h"

namespace sluice::SLUICE_LEVEL {

/// Asks for `count` elements ahead of their use where they are few: rows of a column that
/// is far from the one before.
template <typename E> SLUICE_INLINE void fetchAhead(const E *from, int64_t count) {
  constexpr int64_t kLine = 64 / sizeof(E);
  if (count <= 16 * kLine)
    for (int64_t i = 0; i < count; i += kLine)
      __builtin_prefetch(from + i);
}

/// One panel of `rows` <= Width rows and `k` steps: to[kk * Width + i] = from[i * row +
/// kk * col]. What is beyond `rows` becomes 0.
template <int Width, typename S = F32>
static void packPanel(const typename S::Element *from, int64_t row, int64_t col,
                      int64_t rows, int64_t k, float *to) {
  if (rows < Width)
    std::memset(to, 0, k * Width * sizeof(float));
  if (row == 1 && rows == Width) {
    for (int64_t kk = 0; kk < k; ++kk)
      widen<S>(from + kk * col, to + kk * Width, Width);
    return;
  }
  int64_t i = 0;
  if (col == 1) {
    int64_t whole = k / 8 * 8;
    for (; Width % 8 == 0 && i + 8 <= rows; i += 8) {
      for (int64_t kk = 0; kk < whole; kk += 8)
        transpose8x8<S>(from + i * row + kk, row, to + kk * Width + i, Width);
      for (int64_t kk = whole; kk < k; ++kk)
        for (int64_t j = i; j < i + 8; ++j)
          to[kk * Width + j] = S::load1(from + j * row + kk);
    }
    whole = k / 4 * 4;
    for (; i + 4 <= rows; i += 4) {
      for (int64_t kk = 0; kk < whole; kk += 4)
        transpose4x4<S>(from + i * row + kk, row, to + kk * Width + i, Width);
      for (int64_t kk = whole; kk < k; ++kk)
        for (int64_t j = i; j < i + 4; ++j)
          to[kk * Width + j] = S::load1(from + j * row + kk);
    }
  }
  for (int64_t kk = 0; kk < k; ++kk)
    for (int64_t j = i; j < rows; ++j)
      to[kk * Width + j] = S::load1(from + j * row + kk * col);
}

/// The same of an operand of any format.
template <int Width>
SLUICE_INLINE void packPanelOf(Operand from, int64_t row, int64_t col, int64_t rows,
                               int64_t k, float *to) {
  if (from.coded)
    return decodePieces<float>(from, row, col, rows, k, [&](const Piece<float> &p) {
      packPanel<Width>(p.data, p.row, p.col, rows, p.steps, to + p.first * Width);
    });
  byFormat(from.type, [&]<typename S>(S) {
    packPanel<Width, S>(from.as<S>(), row, col, rows, k, to);
  });
}

/// Panels of 12 rows of A one after another, each [k][12].
SLUICE_INLINE void packRows(Operand a, int64_t row, int64_t col, int64_t rows, int64_t k,
                            float *to) {
  if (a.coded)
    return decodePieces<float>(a, row, col, rows, k, [&](const Piece<float> &p) {
      for (int64_t i = 0; i < rows; i += kTileRows)
        packPanel<kTileRows>(p.data + i * p.row, p.row, p.col, least(kTileRows, rows - i),
                             p.steps, to + i * k + p.first * kTileRows);
    });
  for (int64_t i = 0; i < rows; i += kTileRows, to += k * kTileRows)
    packPanelOf<kTileRows>(a.at(i * row), row, col, least(kTileRows, rows - i), k, to);
}

} // namespace sluice::SLUICE_LEVEL
