// Convolutions of bf16 by bf16 and their gradients in x on tiles. Bits as products of
// level `amx` (GemmParams.h) with k = (channel, kernel position): blocks of 256 rows of B
// are whole steps of 32, so where they end does not matter.

#include "kernels/cpu/ConvUnits.h"
#include "kernels/cpu/Kernels.h"
#include "kernels/cpu/TileBlock.h"

namespace sluice::SLUICE_LEVEL {
namespace {

/// A vector of columns of two rows as pairs; the later row is zeros without its address.
SLUICE_INLINE void interleaveColumns(const uint16_t *earlier, const uint16_t *later,
                                     float *to) {
#if defined(__AVX512F__)
  auto widened = [](const uint16_t *p) {
    return _mm512_cvtepu16_epi32(
        _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)));
  };
  __m512i words = widened(earlier);
  if (later)
    words = _mm512_or_si512(words, _mm512_slli_epi32(widened(later), 16));
  _mm512_storeu_si512(to, words);
#else
  interleave(earlier, later, kLanes, reinterpret_cast<uint16_t *>(to));
#endif
}

/// Weights by tiles of 16 rows and 32 steps, panels by pairs of steps, the earlier one in
/// the lower half.
class TiledTaps {
public:
  using Element = uint16_t;
  static constexpr int64_t kStep = 2;

  static int64_t tileSteps(int64_t k) { return ceilDiv(k, kUnitK); }
  static int64_t steps(int64_t k) { return tileSteps(k) * kUnitK / 2; }
  static int64_t weightFloats(int64_t rows, int64_t k) {
    return ceilDiv(rows, kUnitRows) * tileSteps(k) * kTileElements / 2;
  }

  static void packA(const WeightRows &w, int64_t first, const int64_t *at, int64_t rows,
                    int64_t k, float *to) {
    const uint16_t *from = w.data.as<Bf16>() + first * w.row;
    auto *tiles = reinterpret_cast<uint16_t *>(to);
    std::memset(tiles, 0, weightFloats(rows, k) * sizeof(float));
    for (int64_t i = 0; i < rows; ++i, from += w.row) {
      uint16_t *row =
          tiles + i / kUnitRows * tileSteps(k) * kTileElements + i % kUnitRows * kUnitK;
      for (int64_t kk = 0; kk < k; kk += kUnitK, row += kTileElements) {
        int64_t width = least(kUnitK, k - kk);
        if (at[kk + width - 1] - at[kk] == width - 1 && isAscending(at + kk, width))
          std::memcpy(row, from + at[kk], width * sizeof *row);
        else
          for (int64_t s = 0; s < width; ++s)
            row[s] = from[at[kk + s]];
      }
    }
  }
  static void fill(const Gather &g, const Planes &p, const Box &box, const Source &source,
                   int64_t channel, int64_t channels, uint16_t *to) {
    fillPlanes<Bf16>(g, p, box, source, channel, channels, to);
  }
  static void put(Operand element, int64_t kk, float *to) {
    auto *pair = reinterpret_cast<uint16_t *>(to + kk / 2 * kTileCols);
    pair[kk % 2] = *element.as<Bf16>();
  }
  static void gatherStep(const uint16_t *planes, const int64_t *rows, int64_t left,
                         int64_t at, int64_t offset, float *to) {
    const uint16_t *from = planes + offset;
    interleaveColumns(from + rows[0], left > 1 ? from + rows[1] : nullptr, to + at);
  }
  /// The last step of k is filled up.
  static void endPanel(int64_t k, float *panel) {
    int64_t pairs = ceilDiv(k, 2);
    std::memset(panel + pairs * kTileCols, 0,
                (steps(k) - pairs) * kTileCols * sizeof *panel);
  }

  void multiply(const PanelProduct &p) {
    int64_t n = tileSteps(p.k);
    auto *panel = reinterpret_cast<const uint16_t *>(p.panel);
    BlockOperands x{nullptr, n * kTileElements, panel, panel + (n - 1) * kStepElements,
                    n};
    Ahead nothing{nullptr, nullptr, 0};
    for (int64_t i = 0; i < p.rows; i += kBlock) {
      x.a = reinterpret_cast<const uint16_t *>(p.weights) + i * n * kUnitK;
      BlockOfC c{{p.sums + i * p.row, format::kF32},
                 p.row,
                 least(kBlock, p.rows - i),
                 kTileCols};
      blocks.multiply(x, p.accumulate ? &c : nullptr, c, nothing);
    }
  }
  void finish() { blocks.finish(); }

private:
  static bool isAscending(const int64_t *at, int64_t count) {
    for (int64_t s = 1; s < count; ++s)
      if (at[s] != at[0] + s)
        return false;
    return true;
  }

  alignas(64) float scratch[TileBlocks::kScratchBytes / sizeof(float)];
  TileBlocks blocks{scratch};
};

} // namespace

void convForward(void *const *buffers, const int64_t *params, int64_t begin, int64_t end,
                 int64_t worker) {
  auto p = readParams<ConvParams>(params);
  if (!usesPairs(p.sourceType, p.wType))
    return SLUICE_BELOW::convForward(buffers, params, begin, end, worker);
  runConvUnits<TiledTaps>(p, /*inputGrad=*/false, buffers, begin, end);
}

void convInputGrad(void *const *buffers, const int64_t *params, int64_t begin,
                   int64_t end, int64_t worker) {
  auto p = readParams<ConvParams>(params);
  if (!usesPairs(p.sourceType, p.wType))
    return SLUICE_BELOW::convInputGrad(buffers, params, begin, end, worker);
  runConvUnits<TiledTaps>(p, /*inputGrad=*/true, buffers, begin, end);
}

} // namespace sluice::SLUICE_LEVEL
