#pragma once
// The register tile of dot products of pairs. vdpbf16ps adds the product of the upper
// halves to a sum, rounds, then that of the lower ones.

#include "kernels/cpu/Tile.h"

namespace sluice::SLUICE_LEVEL {

SLUICE_INLINE Vec dot(Vec a, Vec b, Vec c) {
  return _mm512_dpbf16_ps(c, reinterpret_cast<__m512bh>(a),
                          reinterpret_cast<__m512bh>(b));
}

/// C[Rows][32] = or += sum over k steps, panels of words.
template <int Rows>
static void dotTile(int64_t k, const float *a, const float *b, int64_t, float *c,
                    int64_t cRow, bool accumulate) {
  Vec acc[Rows][2];
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
    acc[i][0] = acc[i][1] = zero();
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
    __builtin_prefetch(c + i * cRow, 1);
#pragma GCC unroll 2
  for (int64_t s = 0; s < k / 2; ++s, a += kTileRows, b += kTileCols) {
    Vec b0 = load(b), b1 = load(b + kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      Vec x = splat(a[i]);
      acc[i][0] = dot(x, b0, acc[i][0]);
      acc[i][1] = dot(x, b1, acc[i][1]);
    }
  }
  if (k % 2) {
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

constexpr RegisterTile kDotTiles[] = SLUICE_TILES(dotTile);

} // namespace sluice::SLUICE_LEVEL
