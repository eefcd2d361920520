#pragma once
// The order of samples in an epoch, as a function: any place can be asked for alone, so
// that a run resumes anywhere without state.

#include <bit>
#include <cstdint>

namespace sluice {

/// A bijection of [0, size) for each (seed, epoch): a balanced Feistel network over the
/// next power of four, walked until it lands inside (J. Black and P. Rogaway, "Ciphers
/// with arbitrary finite domains", 2002); fewer than four steps on average.
class SamplePermutation {
public:
  SamplePermutation(uint64_t seed, uint64_t epoch, uint64_t size) : size(size) {
    int bits = size > 1 ? std::bit_width(size - 1) : 1;
    halfBits = (bits + 1) / 2;
    uint64_t state = mix(mix(seed) ^ epoch);
    for (uint64_t &key : keys)
      key = state = mix(state);
  }

  /// index < size.
  uint64_t operator()(uint64_t index) const {
    do
      index = encipher(index);
    while (index >= size);
    return index;
  }

private:
  static constexpr int rounds = 8;

  /// The finaliser of splitmix64 (S. Vigna), with its increment.
  static uint64_t mix(uint64_t value) {
    value += 0x9e3779b97f4a7c15;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
    value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
    return value ^ (value >> 31);
  }

  uint64_t encipher(uint64_t value) const {
    uint64_t mask = (uint64_t(1) << halfBits) - 1;
    uint64_t left = value >> halfBits, right = value & mask;
    for (uint64_t key : keys) {
      uint64_t next = left ^ (mix(right ^ key) & mask);
      left = right;
      right = next;
    }
    return left << halfBits | right;
  }

  uint64_t size;
  int halfBits;
  uint64_t keys[rounds];
};

} // namespace sluice
