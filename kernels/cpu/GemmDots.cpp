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
