#pragma once
// The tile registers of AMX in memory and TDPBF16PS in scalar code, by the operation
// section of Intel's manual (SDM volume 2, TDPBF16PS), so that everything around the
// instructions can be tested on any processor. For tests: nothing of a plan runs on it.

#include "kernels/cpu/Half.h"

namespace sluice::SLUICE_LEVEL {

class EmulatedUnit {
public:
  template <int T> void zero() { std::memset(tiles[T], 0, sizeof tiles[T]); }
  template <int T> void load(const void *from, int64_t strideBytes) {
    for (int64_t r = 0; r < 16; ++r)
      std::memcpy(tiles[T][r], static_cast<const uint8_t *>(from) + r * strideBytes, 64);
  }
  template <int T> void stream(const void *from, int64_t strideBytes) {
    load<T>(from, strideBytes);
  }
  template <int T> void store(void *to, int64_t strideBytes) {
    for (int64_t r = 0; r < 16; ++r)
      std::memcpy(static_cast<uint8_t *>(to) + r * strideBytes, tiles[T][r], 64);
  }
  /// Tile C of a 2 x 2 block += A * B: C 0 to 3, A 4 and 5, B 6 and 7.
  template <int C> void multiply() { multiply(C, 4 + C / 2, 6 + C % 2); }

private:
  /// Products of the even and of the odd elements of k are summed apart by fused
  /// multiply-adds, from 0; then their sum is added to C.
  void multiply(int c, int a, int b) {
    for (int m = 0; m < 16; ++m) {
      float sums[32] = {}, row[16];
      for (int k = 0; k < 16; ++k) {
        float left[2];
        widenPair(tiles[a][m] + 4 * k, left);
        for (int n = 0; n < 16; ++n) {
          float right[2];
          widenPair(tiles[b][k] + 4 * n, right);
          for (int odd = 0; odd < 2; ++odd)
            sums[2 * n + odd] = fusedFlushed(left[odd], right[odd], sums[2 * n + odd]);
        }
      }
      std::memcpy(row, tiles[c][m], sizeof row);
      for (int n = 0; n < 16; ++n)
        row[n] = flushed(flushed(row[n]) + flushed(sums[2 * n] + sums[2 * n + 1]));
      std::memcpy(tiles[c][m], row, sizeof row);
    }
  }

  /// Denormal operands count as zeros of their sign.
  static void widenPair(const uint8_t *from, float *to) {
    uint16_t pair[2];
    std::memcpy(pair, from, sizeof pair);
    to[0] = flushed(Bf16::load1(pair));
    to[1] = flushed(Bf16::load1(pair + 1));
  }

  static float flushed(float x) {
    uint32_t bits = __builtin_bit_cast(uint32_t, x);
    return bits & 0x7f800000 ? x : __builtin_bit_cast(float, bits & 0x80000000);
  }

  /// Rounded to nearest even; a result is tiny if it is when rounded to 24 bits, however
  /// small the exponent: what lies less than half of such a step below 2^-126 is not.
  static float fusedFlushed(float a, float b, float c) {
    float r = __builtin_fmaf(a, b, c);
    if (__builtin_fabsf(r) == 0x1p-126f &&
        __builtin_fabs(double(a) * b + c) < 0x1p-126 * (1 - 0x1p-25))
      return __builtin_copysignf(0, r);
    return flushed(r);
  }

  alignas(64) uint8_t tiles[8][16][64];
};

} // namespace sluice::SLUICE_LEVEL
