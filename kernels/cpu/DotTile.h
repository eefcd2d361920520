#pragma once
// The register tile of dot products of pairs. vdpbf16ps adds the product of the upper
// halves to a sum, rounds, then that of the lower ones.

#include "kernels/cpu/Tile.h"

namespace sluice::SLUICE_LEVEL {

SLUICE_INLINE Vec dot(Vec a, Vec b, Vec c) {
  return _mm512_dpbf16_ps(c, reinterpret_cast<__m512bh>(a),
                          reinterpret_cast<__m512bh>(b));
}

constexpr auto dot3 = [](Vec x, Vec y, Vec sum)
                          __attribute__((always_inline)) { return dot(x, y, sum); };

/// C[Rows][32] = or += sum over k steps, panels of words.
template <int Rows>
static void dotTile(int64_t k, const float *a, const float *b, int64_t, float *c,
                    int64_t cRow, bool accumulate) {
  RegisterSums<Rows> sums;
  sums.expect(c, cRow);
#pragma GCC unroll 2
  for (int64_t s = 0; s < k / 2; ++s, a += kTileRows, b += kTileCols)
    sums.step(b, [a](int i) __attribute__((always_inline)) { return splat(a[i]); }, dot3);
  if (k % 2)
    sums.step(b, [a](int i) __attribute__((always_inline)) { return splat(a[i]); }, fma3);
  sums.writeTo(c, cRow, accumulate);
}

constexpr RegisterTile kDotTiles[] = SLUICE_TILES(dotTile);

} // namespace sluice::SLUICE_LEVEL
