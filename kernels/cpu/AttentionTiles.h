#pragma once
// Blocks of attention on a unit of tiles. What is multiplied from the left lies in tiles
// of 16 rows (keys, values' or keys' columns) or as rows of 64 halves (probabilities and
// their gradients); from the right in pairs of steps, the earlier one in the lower half.
// Steps of k are filled up with zeros to 32.

#include "kernels/cpu/AttentionBlock.h"
#include "kernels/cpu/TileBlock.h"

namespace sluice::SLUICE_LEVEL {

class Tiles {
public:
  static constexpr bool kPaired = true, kScalesQueries = false;
  static constexpr int kRowOfP = kQueries, kRowOfDs = kQueries / 2;

  /// Rows of words of k steps.
  static constexpr int64_t steps(int64_t depth) { return tileSteps(depth) * kUnitK / 2; }
  static constexpr int64_t whole(int64_t depth) { return depth / 2; }
  static constexpr int64_t stepOfKeys(int64_t depth) {
    return tileSteps(depth) * kTileElements;
  }
  static constexpr int64_t stepOfValues(int64_t, int64_t keys) {
    return tileSteps(keys) * kTileElements;
  }

  SLUICE_INLINE Vec fused(Vec x, Vec y, Vec sum) {
    const Bits upper = allBits(0xffff0000u);
    sum = last(x, y, sum);
    return fma(realOf(andBits(bitsOf(x), upper)), realOf(andBits(bitsOf(y), upper)), sum);
  }
  SLUICE_INLINE Vec last(Vec x, Vec y, Vec sum) {
    return fma(realOf(shiftLeft<16>(bitsOf(x))), realOf(shiftLeft<16>(bitsOf(y))), sum);
  }

  static void packColumns(Operand from, int64_t row, int64_t rows, int64_t depth,
                          float *to) {
    packPairs<kQueries>({from.as<Bf16>(), row, 1}, rows, depth, steps(depth), halves(to));
  }
  static void packKeys(Operand from, int64_t row, int64_t rows, int64_t depth,
                       float *to) {
    for (int64_t i = 0; i < rows; i += kUnitRows)
      packTiles({from.as<Bf16>() + i * row, row, 1}, least(kUnitRows, rows - i), depth,
                tileSteps(depth), halves(to) + i * tileSteps(depth) * kUnitK);
  }
  /// Transposed: rows of tiles are columns of `from`.
  static void packValues(Operand from, int64_t row, int64_t rows, int64_t depth, int64_t,
                         float *to) {
    for (int64_t d = 0; d < depth; d += kUnitRows)
      packTiles({from.as<Bf16>() + d, 1, row}, least(kUnitRows, depth - d), rows,
                tileSteps(rows), halves(to) + d * tileSteps(rows) * kUnitK);
  }
  static void packWholeRows(Operand from, int64_t row, int64_t rows, int64_t depth,
                            int64_t cols, float *to) {
    const uint16_t *x = from.as<Bf16>();
    uint16_t *pairs = halves(to);
    std::memset(to, 0, steps(rows) * cols * sizeof *to);
    for (int64_t i = 0; i < rows; i += 2, x += 2 * row, pairs += 2 * cols)
      interleave(x, i + 1 < rows ? x + row : nullptr, depth, pairs);
  }

  SLUICE_INLINE void putKeys(float *block, int64_t lane, int64_t k, Vec first,
                             Vec second) {
    Bits low = andBits(shiftRight<16>(bitsOf(roundedTo<Bf16>(first))), allBits(0xffff));
    Bits high = andBits(bitsOf(roundedTo<Bf16>(second)), allBits(0xffff0000u));
    store(block + k / 2 * kQueries + lane, realOf(addBits(low, high)));
  }
  SLUICE_INLINE void putQueries(float *block, int64_t lane, int64_t k, Vec first,
                                Vec second) {
    putRows<kRowOfP>(block, lane, k, first, second);
  }
  SLUICE_INLINE void putBoth(float *block, float *rows, int64_t lane, int64_t k,
                             Vec first, Vec second) {
    putKeys(block, lane, k, first, second);
    putRows<kRowOfDs>(rows, lane, k, first, second);
  }
  /// Of pairs of keys: what fills up the last step.
  static void endKeys(float *block, int64_t lanes, int64_t keys) {
    for (int64_t pair = (keys + 1) / 2; pair < steps(keys); ++pair)
      std::memset(block + pair * kQueries, 0, lanes * sizeof *block);
  }
  /// Of rows of keys. Lanes of no query may hold anything.
  static void endQueries(float *rows, int64_t row, int64_t keys, int64_t queries) {
    for (int64_t k = 0; queries < kQueries && k < keys; ++k)
      std::memset(halves(rows + k * row) + queries, 0,
                  (kQueries - queries) * sizeof(uint16_t));
  }

  template <int RowOfA, Store How> void multiply(const BlockProduct &p) {
    if constexpr (How == Store::Scale)
      scaleColumns(p);
    int64_t n = tileSteps(p.depth);
    BlockOperands x{nullptr, p.aStep, nullptr, nullptr, n};
    x.bRow = 4 * p.bRow;
    if constexpr (RowOfA != 1)
      x.aRow = 4 * RowOfA, x.aStep = kUnitK, x.aNext = 2 * RowOfA * kUnitRows;
    Ahead nothing{nullptr, nullptr, 0};
    for (int64_t j = 0; j < p.cols; j += kBlock)
      for (int64_t i = 0; i < p.rows; i += kBlock) {
        x.a = words(p.a) + i / kUnitRows * x.aNext;
        x.b = words(p.b + j), x.lastOfB = x.b + (n - 1) * kUnitK * p.bRow;
        BlockOfC c{{p.c + i * p.cRow + j, format::kF32},
                   p.cRow,
                   least(kBlock, p.rows - i),
                   least(kBlock, p.cols - j)};
        blocks.multiply(x, How == Store::Set ? nullptr : &c, c, nothing);
      }
    blocks.finish();
  }

private:
  static constexpr int64_t tileSteps(int64_t k) { return (k + kUnitK - 1) / kUnitK; }
  static uint16_t *halves(float *words) { return reinterpret_cast<uint16_t *>(words); }
  static const uint16_t *words(const float *at) {
    return reinterpret_cast<const uint16_t *>(at);
  }

  template <int Row>
  SLUICE_INLINE void putRows(float *block, int64_t lane, int64_t k, Vec first,
                             Vec second) {
    putHalves(halves(block + k * Row) + lane, first);
    putHalves(halves(block + (k + 1) * Row) + lane, second);
  }
  SLUICE_INLINE void putHalves(uint16_t *to, Vec x) {
#if defined(__AVX512F__)
    store16(Bf16{}, to, x);
#else
    Bf16::store8(to, x);
#endif
  }

  static void scaleColumns(const BlockProduct &p) {
    for (int64_t j = 0; j < p.cols; j += kLanes) {
      Vec factor = load(p.factor + j);
      for (int64_t i = 0; i < p.rows; ++i) {
        float *c = p.c + i * p.cRow + j;
        store(c, mul(load(c), factor));
      }
    }
  }

  alignas(64) float scratch[TileBlocks::kScratchBytes / sizeof(float)];
  TileBlocks blocks{scratch};
};

} // namespace sluice::SLUICE_LEVEL
