#pragma once
// The register tile all products share: 12 x 32 of C, from a panel of A packed [k][12]
// and rows of B.

#include "kernels/GemmParams.h"
#include "kernels/cpu/Vector.h"

namespace sluice::SLUICE_LEVEL {

constexpr int kTileRows = gemm::kTileRows, kTileCols = gemm::kTileCols;
// 24 accumulators of 32 registers with AVX-512, 12 of 16 with AVX2.
constexpr int kRegisterRows = kLanes == 16 ? 12 : 6;
constexpr int kRegisterCols = 2 * kLanes;

/// C[Rows][kRegisterCols] = or += sum over k of a[k * 12 + row] * rowOfB(k)[column].
template <int Rows, typename RowOfB>
SLUICE_INLINE void accumulateTile(int64_t k, const float *a, RowOfB rowOfB, float *c,
                                  int64_t cRow, bool accumulate) {
  Vec acc[Rows][2];
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
    acc[i][0] = acc[i][1] = zero();
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
    __builtin_prefetch(c + i * cRow, 1);
#pragma GCC unroll 2
  for (int64_t kk = 0; kk < k; ++kk, a += kTileRows) {
    const float *b = rowOfB(kk);
    Vec b0 = load(b), b1 = load(b + kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      Vec x = splat(a[i]);
      acc[i][0] = fma(x, b0, acc[i][0]);
      acc[i][1] = fma(x, b1, acc[i][1]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i, c += cRow) {
    if (accumulate) {
      acc[i][0] = add(load(c), acc[i][0]);
      acc[i][1] = add(load(c + kLanes), acc[i][1]);
    }
    store(c, acc[i][0]);
    store(c + kLanes, acc[i][1]);
  }
}

/// Rows of B a stride apart.
template <int Rows>
static void registerTile(int64_t k, const float *a, const float *b, int64_t bStride,
                         float *c, int64_t cRow, bool accumulate) {
  accumulateTile<Rows>(
      k, a, [=](int64_t kk) { return b + kk * bStride; }, c, cRow, accumulate);
}

/// Rows of B at given offsets.
template <int Rows>
static void registerTileAt(int64_t k, const float *a, const float *b,
                           const int64_t *offsets, float *c, int64_t cRow,
                           bool accumulate) {
  accumulateTile<Rows>(
      k, a, [=](int64_t kk) { return b + offsets[kk]; }, c, cRow, accumulate);
}

using RegisterTile = void (*)(int64_t, const float *, const float *, int64_t, float *,
                              int64_t, bool);
using RegisterTileAt = void (*)(int64_t, const float *, const float *, const int64_t *,
                                float *, int64_t, bool);
// By rows.
#if defined(__AVX512F__)
#define SLUICE_TILES(tile)                                                               \
  {nullptr, tile<1>, tile<2>, tile<3>,  tile<4>,  tile<5>, tile<6>,                      \
   tile<7>, tile<8>, tile<9>, tile<10>, tile<11>, tile<12>}
#else
#define SLUICE_TILES(tile) {nullptr, tile<1>, tile<2>, tile<3>, tile<4>, tile<5>, tile<6>}
#endif
constexpr RegisterTile kRegisterTiles[] = SLUICE_TILES(registerTile);

/// C of rows <= 12 and all 32 columns.
SLUICE_INLINE void fullTile(int64_t rows, int64_t k, const float *a, const float *b,
                            int64_t bStride, float *c, int64_t cRow, bool accumulate,
                            const RegisterTile *tiles = kRegisterTiles) {
  for (int64_t r = 0; r < rows; r += kRegisterRows)
    for (int64_t j = 0; j < kTileCols; j += kRegisterCols)
      tiles[least(rows - r, kRegisterRows)](k, a + r, b + j, bStride, c + r * cRow + j,
                                            cRow, accumulate);
}

/// Any rows <= 12, cols <= 32 and column stride of C. B must be readable over the whole
/// panel.
static inline void tile(int64_t rows, int64_t cols, int64_t k, const float *a,
                        const float *b, int64_t bStride, float *c, int64_t cRow,
                        int64_t cCol, bool accumulate,
                        const RegisterTile *tiles = kRegisterTiles) {
  if (cols == kTileCols && cCol == 1)
    return fullTile(rows, k, a, b, bStride, c, cRow, accumulate, tiles);
  alignas(64) float block[kTileRows * kTileCols];
  for (int64_t r = 0; r < rows; r += kRegisterRows)
    for (int64_t j = 0; j < cols; j += kRegisterCols)
      tiles[least(rows - r, kRegisterRows)](k, a + r, b + j, bStride,
                                            block + r * kTileCols + j, kTileCols, false);
  for (int64_t i = 0; i < rows; ++i) {
    const float *from = block + i * kTileCols;
    float *to = c + i * cRow;
    if (accumulate)
      for (int64_t j = 0; j < cols; ++j)
        to[j * cCol] += from[j];
    else
      for (int64_t j = 0; j < cols; ++j)
        to[j * cCol] = from[j];
  }
}

static constexpr RegisterTileAt kRegisterTilesAt[] = SLUICE_TILES(registerTileAt);

/// All 32 columns; rows of B start at b + offsets[k].
SLUICE_INLINE void fullTileAt(int64_t rows, int64_t k, const float *a, const float *b,
                              const int64_t *offsets, float *c, int64_t cRow,
                              bool accumulate) {
  for (int64_t r = 0; r < rows; r += kRegisterRows)
    for (int64_t j = 0; j < kTileCols; j += kRegisterCols)
      kRegisterTilesAt[least(rows - r, kRegisterRows)](
          k, a + r, b + j, offsets, c + r * cRow + j, cRow, accumulate);
}

} // namespace sluice::SLUICE_LEVEL
