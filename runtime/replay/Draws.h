#pragma once
// Random numbers of the replay buffer: functions of seed, key and purpose.

#include <cmath>
#include <cstdint>

namespace sluice {

/// A stream of words by splitmix64 (S. Vigna) from a mixed start.
class ReplayDraws {
public:
  enum Purpose : uint64_t { keeping = 1, drawing = 2 };

  ReplayDraws(uint64_t seed, uint64_t key, Purpose purpose)
      : state(mix(mix(mix(seed) ^ key) ^ purpose)) {}

  uint64_t word() { return state = mix(state); }
  /// Uniform in [0, bound), without bias: words beyond the last whole multiple are drawn
  /// again. bound > 0.
  uint64_t below(uint64_t bound) {
    uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
    uint64_t drawn = word();
    while (drawn >= limit)
      drawn = word();
    return drawn % bound;
  }
  double uniform() { return static_cast<double>(word() >> 11) * 0x1p-53; }

private:
  static uint64_t mix(uint64_t value) {
    value += 0x9e3779b97f4a7c15;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
    value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
    return value ^ (value >> 31);
  }
  uint64_t state;
};

/// base ^ exponent for base in (0, 1]. The library's pow differs by its last bit between
/// machines: 40 bits are kept, so that draws are the same everywhere.
inline double fixedPower(double base, double exponent) {
  return std::round(std::pow(base, exponent) * 0x1p40) * 0x1p-40;
}

} // namespace sluice
