#pragma once
// Random numbers of probes by counter, so that a probe can be repeated: Philox4x32-10
// (Salmon et al., 2011), as compiled programs draw them.

#include <array>
#include <cstdint>

namespace sluice {

/// In [0, 1), with 53 bits.
double uniformOf(uint64_t seed, uint64_t sample, uint64_t row);

/// Random signs of one draw over one parameter: bit `element % 128` of the words of
/// counter `element / 128`.
class Signs {
public:
  Signs(uint64_t seed, uint32_t draw, uint32_t parameter)
      : seed(seed), draw(draw), parameter(parameter) {}
  /// 1 or -1; cheapest for rising elements.
  float of(uint64_t element);

private:
  uint64_t seed;
  uint32_t draw, parameter;
  uint64_t counter = ~uint64_t{0};
  std::array<uint32_t, 4> words{};
};

} // namespace sluice
