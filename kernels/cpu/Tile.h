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

constexpr auto fma3 = [](Vec x, Vec y, Vec sum)
                          __attribute__((always_inline)) { return fma(x, y, sum); };

/// The sums of a tile in registers, and both of its ends, whatever multiplies. `Vectors`
/// of columns.
template <int Rows, int Vectors = 2> struct RegisterSums {
  Vec acc[Rows][Vectors];

  __attribute__((always_inline)) RegisterSums() {
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v)
        acc[i][v] = zero();
  }
  /// Asks for what sums will be written to.
  __attribute__((always_inline)) static void expect(const float *c, int64_t cRow) {
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i)
      __builtin_prefetch(c + i * cRow, 1);
  }
  /// A step: row(i) times a row of B, by `product` (x, y, sum).
  template <typename Row, typename Product>
  __attribute__((always_inline)) void step(const float *b, Row row, Product product) {
    Vec y[Vectors];
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v)
      y[v] = load(b + v * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      Vec x = row(i);
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v)
        acc[i][v] = product(x, y[v], acc[i][v]);
    }
  }
  /// C = end(place in C, vector of columns, sums).
  template <typename End>
  __attribute__((always_inline)) void finish(float *c, int64_t cRow, End end) const {
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i, c += cRow)
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v)
        store(c + v * kLanes, end(c + v * kLanes, v, acc[i][v]));
  }
  /// C = or += the sums.
  __attribute__((always_inline)) void writeTo(float *c, int64_t cRow,
                                              bool accumulate) const {
    if (accumulate)
      finish(c, cRow, [](const float *at, int, Vec sum) __attribute__((always_inline)) {
        return add(load(at), sum);
      });
    else
      finish(c, cRow, [](const float *, int, Vec sum) __attribute__((always_inline)) {
        return sum;
      });
  }
};

/// C[Rows][kRegisterCols] = or += sum over k of a[k * 12 + row] * rowOfB(k)[column].
template <int Rows, typename RowOfB>
SLUICE_INLINE void accumulateTile(int64_t k, const float *a, RowOfB rowOfB, float *c,
                                  int64_t cRow, bool accumulate) {
  RegisterSums<Rows> sums;
  sums.expect(c, cRow);
#pragma GCC unroll 2
  for (int64_t kk = 0; kk < k; ++kk, a += kTileRows)
    sums.step(
        rowOfB(kk), [a](int i) __attribute__((always_inline)) { return splat(a[i]); },
        fma3);
  sums.writeTo(c, cRow, accumulate);
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
