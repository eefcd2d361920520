#pragma once
// The 8-bit dynamic map of optimizer state (Dettmers et al., 2022), as the compiled
// kernels have it: docs/ops.md, dynamic_encode.

#include <array>
#include <cstdint>

namespace sluice {

class DynamicMap {
public:
  /// Without signs there are twice as many values between 0 and 1.
  explicit DynamicMap(bool isPositive);

  float decode(int8_t code) const;
  /// Of the nearest value, the larger in magnitude on ties; x in [-1, 1] or [0, 1].
  int8_t encode(float x) const;

private:
  bool isPositive;
  int last;                      // number of the value 1
  std::array<float, 256> values; // by number, in order of size
};

} // namespace sluice
