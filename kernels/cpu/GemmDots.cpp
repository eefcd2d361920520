// Products of bf16 by bf16 with the processor's dot products of pairs (avx512_bf16),
// twice as many multiplications an instruction. The same bits as the level below:
// products of bf16 are exact in f32, vdpbf16ps adds the upper halves' product to the sum,
// rounds, then the lower halves' (Intel's and AMD's manuals), and takes denormals as
// zeros, as the level below does for these operands. Products of other formats are those
// below.

#include "kernels/cpu/DotTile.h"
#include "kernels/cpu/FlushDenormals.h"
#include "kernels/cpu/GemmBlocks.h"
#include "kernels/cpu/Kernels.h"
#include "kernels/cpu/PackDots.h"

namespace sluice::SLUICE_LEVEL {
namespace {

/// dotTile whose rows of B are bf16 where they lie, `stride` elements apart: pairs of
/// them become words on the way.
template <int Rows>
void dotTileOfRows(int64_t k, const float *a, const float *panel, int64_t stride,
                   float *c, int64_t cRow, bool accumulate) {
  const auto *b = reinterpret_cast<const uint16_t *>(panel);
  const __m512i lane =
      _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  // Halves of a word: that of the later row (from 32 on), then of the earlier one.
  const __m512i low = _mm512_or_si512(_mm512_add_epi32(lane, _mm512_set1_epi32(32)),
                                      _mm512_slli_epi32(lane, 16));
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(kLanes));
  alignas(64) float words[kTileCols];
  auto interleaved = [&](__m512i earlier, __m512i later) __attribute__((always_inline)) {
    _mm512_store_si512(words, _mm512_permutex2var_epi16(earlier, low, later));
    _mm512_store_si512(words + kLanes, _mm512_permutex2var_epi16(earlier, high, later));
  };
  auto row = [&a](int i) __attribute__((always_inline)) { return splat(a[i]); };
  RegisterSums<Rows> sums;
  sums.expect(c, cRow);
#pragma GCC unroll 2
  for (int64_t s = 0; s < k / 2; ++s, a += kTileRows, b += 2 * stride) {
    __builtin_prefetch(b + kTileCols); // of the next panel, far from here
    __builtin_prefetch(b + stride + kTileCols);
    interleaved(_mm512_loadu_si512(b), _mm512_loadu_si512(b + stride));
    sums.step(words, row, dot3);
  }
  if (k % 2) {
    interleaved(_mm512_loadu_si512(b), _mm512_setzero_si512());
    sums.step(words, row, fma3);
  }
  sums.writeTo(c, cRow, accumulate);
}
constexpr RegisterTile kDotTilesOfRows[] = SLUICE_TILES(dotTileOfRows);

struct Pairs {
  static int64_t steps(int64_t k) { return pairsOf(k); }
  static void packA(Operand a, int64_t row, int64_t col, int64_t rows, int64_t k,
                    float *to) {
    if (a.coded)
      return decodePieces<uint16_t>(a, row, col, rows, k, [&](const Piece<uint16_t> &p) {
        for (int64_t i = 0; i < rows; i += kTileRows)
          packDots<kTileRows>(p.data + i * p.row, p.row, p.col,
                              least(kTileRows, rows - i), p.steps,
                              to + i * pairsOf(k) + p.first / 2 * kTileRows);
      });
    const uint16_t *from = a.as<Bf16>();
    for (int64_t i = 0; i < rows; i += kTileRows, to += pairsOf(k) * kTileRows)
      packDots<kTileRows>(from + i * row, row, col, least(kTileRows, rows - i), k, to);
  }
  static void packB(Operand b, int64_t row, int64_t col, int64_t cols, int64_t k,
                    float *to) {
    if (b.coded)
      return decodePieces<uint16_t>(b, row, col, cols, k, [&](const Piece<uint16_t> &p) {
        packDots<kTileCols>(p.data, p.row, p.col, cols, p.steps,
                            to + p.first / 2 * kTileCols);
      });
    packDots<kTileCols>(b.as<Bf16>(), row, col, cols, k, to);
  }
  static constexpr const RegisterTile *kTiles = kDotTiles;
  static constexpr const RegisterTile *kTilesInPlace = kDotTilesOfRows;
  static bool readsInPlace(const Operand &b) { return !b.coded; }
};

} // namespace

void gemm(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
          int64_t worker) {
  auto p = readParams<GemmParams>(params);
  if (!usesPairs(p.aType, p.bType))
    return SLUICE_BELOW::gemm(buffers, params, begin, end, worker);
  FlushDenormals guard(true);
  multiply<Pairs>(p, false, buffers, begin, end);
}

void gemmPacked(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
                int64_t worker) {
  auto p = readParams<GemmParams>(params);
  if (!usesPairs(p.aType, p.bType))
    return SLUICE_BELOW::gemmPacked(buffers, params, begin, end, worker);
  FlushDenormals guard(true);
  multiply<Pairs>(p, true, buffers, begin, end);
}

void gemmPackB(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
               int64_t worker) {
  auto p = readParams<GemmPackBParams>(params);
  if (!usesPairs(p.aType, p.bType))
    return SLUICE_BELOW::gemmPackB(buffers, params, begin, end, worker);
  packPanels<Pairs>(p, buffers, begin, end);
}

void gemmSplitK(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
                int64_t worker) {
  auto p = readParams<GemmSplitKParams>(params);
  if (!usesPairs(p.aType, p.bType))
    return SLUICE_BELOW::gemmSplitK(buffers, params, begin, end, worker);
  FlushDenormals guard(true);
  multiplySlices<Pairs>(p, buffers, begin, end);
}

} // namespace sluice::SLUICE_LEVEL
