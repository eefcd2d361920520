#pragma once
// Blocks of attention of pairs of bf16 for dot products (AVX512_BF16), in the order of
// PackDots.h: bit for bit the chains of Singles<Bf16> with denormals flushed.

#include "kernels/cpu/AttentionBlock.h"
#include "kernels/cpu/PackDots.h"

namespace sluice::SLUICE_LEVEL {

struct Pairs : OnRegisters<Pairs> {
  static constexpr bool kPaired = true;
  static constexpr bool kScalesQueries = false;
  static constexpr int kRowOfP = kQueries, kRowOfDs = kQueries / 2;

  static constexpr int64_t steps(int64_t depth) { return pairsOf(depth); }
  static constexpr int64_t whole(int64_t depth) { return depth / 2; }
  SLUICE_INLINE Vec fused(Vec x, Vec y, Vec sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x),
                            reinterpret_cast<__m512bh>(y));
  }
  /// Of an element without a second; its word may hold anything in the lower half.
  SLUICE_INLINE Vec last(Vec x, Vec y, Vec sum) {
    const Bits upper = allBits(0xffff0000u);
    return fma(realOf(andBits(bitsOf(x), upper)), realOf(andBits(bitsOf(y), upper)), sum);
  }

  static void packColumns(Operand from, int64_t row, int64_t rows, int64_t depth,
                          float *to) {
    packDots<kQueries>(from.as<Bf16>(), row, 1, rows, depth, to);
  }
  static void packWholeRows(Operand from, int64_t row, int64_t rows, int64_t depth,
                            int64_t cols, float *to) {
    auto *words = reinterpret_cast<uint32_t *>(to);
    const uint16_t *x = from.as<Bf16>();
    for (int64_t i = 0; i < rows; i += 2, x += 2 * row, words += cols) {
      if (i + 1 < rows)
        interleaveDots(x, x + row, depth, words);
      else
        for (int64_t d = 0; d < depth; ++d)
          words[d] = pairWord(x[d], 0);
      for (int64_t d = depth; d < cols; ++d)
        words[d] = 0;
    }
  }

  /// 16 of one key, then 16 of the next. What the conversion flushes, products would.
  SLUICE_INLINE Bits narrowed(Vec first, Vec second) {
    return reinterpret_cast<Bits>(_mm512_cvtne2ps_pbh(second, first));
  }
  SLUICE_INLINE void putKeys(float *block, int64_t lane, int64_t k, Vec first,
                             Vec second) {
    putWordsOfKeys(block + lane, k, narrowed(first, second));
  }
  SLUICE_INLINE void putQueries(float *block, int64_t lane, int64_t k, Vec first,
                                Vec second) {
    putWordsOfQueries<kRowOfP>(block + lane / 2, k, narrowed(first, second));
  }
  SLUICE_INLINE void putBoth(float *block, float *rows, int64_t lane, int64_t k,
                             Vec first, Vec second) {
    Bits halves = narrowed(first, second);
    putWordsOfKeys(block + lane, k, halves);
    putWordsOfQueries<kRowOfDs>(rows + lane / 2, k, halves);
  }

private:
  SLUICE_INLINE void putWordsOfKeys(float *block, int64_t k, Bits halves) {
    const Bits lane =
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const Bits order = _mm512_or_si512(addBits(lane, allBits(16)), shiftLeft<16>(lane));
    store(block + k / 2 * kQueries, realOf(_mm512_permutexvar_epi16(order, halves)));
  }
  template <int Row>
  SLUICE_INLINE void putWordsOfQueries(float *block, int64_t k, Bits halves) {
    Bits words = _mm512_rol_epi32(halves, 16);
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(block + k * Row),
                        _mm512_castsi512_si256(words));
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(block + (k + 1) * Row),
                        _mm512_extracti64x4_epi64(words, 1));
  }
};

} // namespace sluice::SLUICE_LEVEL
