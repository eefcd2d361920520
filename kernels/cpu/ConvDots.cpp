// Convolutions of bf16 by bf16 and their gradients by dot products of pairs of steps of
// k: of taps, or of the last tap of a channel and the first of the next. Bits as the
// level below (GemmDots.cpp says why).

#include "kernels/cpu/ConvUnits.h"
#include "kernels/cpu/DotTile.h"
#include "kernels/cpu/FlushDenormals.h"
#include "kernels/cpu/Kernels.h"
#include "kernels/cpu/PackDots.h"

namespace sluice::SLUICE_LEVEL {
namespace {

/// Elements of two rows as words; the later row is zeros without its address.
SLUICE_INLINE void interleaveVector(const uint16_t *earlier, const uint16_t *later,
                                    float *to) {
  auto widened = [](const uint16_t *p) {
    return _mm512_cvtepu16_epi32(
        _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)));
  };
  __m512i words = _mm512_slli_epi32(widened(earlier), 16);
  if (later)
    words = _mm512_or_si512(words, widened(later));
  _mm512_storeu_si512(to, words);
}

struct PairedTaps : OnRegisterTiles<PairedTaps> {
  using Element = uint16_t;
  static constexpr const RegisterTile *kTiles = kDotTiles;
  static int64_t steps(int64_t k) { return pairsOf(k); }

  static void packA(const WeightRows &w, int64_t first, const int64_t *at, int64_t rows,
                    int64_t k, float *to) {
    const uint16_t *from = w.data.as<Bf16>() + first * w.row;
    for (int64_t i = 0; i < rows; i += kTileRows, to += pairsOf(k) * kTileRows)
      packDotsAt<kTileRows>(from + i * w.row, w.row, at, least(kTileRows, rows - i), k,
                            to);
  }
  static void fill(const Gather &g, const Planes &p, const Box &box, const Source &source,
                   int64_t channel, int64_t channels, uint16_t *to) {
    fillPlanes<Bf16>(g, p, box, source, channel, channels, to);
  }
  static void put(Operand element, int64_t kk, float *to) {
    auto *word = reinterpret_cast<uint16_t *>(to + kk / 2 * kTileCols);
    word[kk % 2 ? 0 : 1] = *element.as<Bf16>();
  }
  static void gatherStep(const uint16_t *planes, const int64_t *rows, int64_t left,
                         int64_t at, int64_t offset, float *to) {
    const uint16_t *from = planes + offset;
    interleaveVector(from + rows[0], left > 1 ? from + rows[1] : nullptr, to + at);
  }
  static constexpr int64_t kStep = 2;
};

} // namespace

void convForward(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
                 int64_t worker) {
  auto p = readParams<ConvParams>(params);
  if (!usesPairs(p.sourceType, p.wType))
    return SLUICE_BELOW::convForward(buffers, params, begin, end, worker);
  FlushDenormals guard(true);
  runConvUnits<PairedTaps>(p, /*inputGrad=*/false, buffers, begin, end);
}

void convInputGrad(void *const *buffers, const int64_t *params, int64_t begin,
                   int64_t end, int64_t worker) {
  auto p = readParams<ConvParams>(params);
  if (!usesPairs(p.sourceType, p.wType))
    return SLUICE_BELOW::convInputGrad(buffers, params, begin, end, worker);
  FlushDenormals guard(true);
  runConvUnits<PairedTaps>(p, /*inputGrad=*/true, buffers, begin, end);
}

} // namespace sluice::SLUICE_LEVEL
