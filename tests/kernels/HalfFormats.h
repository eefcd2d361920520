#pragma once
// 16-bit formats by their definition, for tests: bf16 by comparing the two neighbours,
// f16 as the compiler converts it.

#include "kernels/Formats.h"
#include "tests/kernels/KernelCase.h"

#include <cmath>
#include <limits>

namespace sluice::test {

inline float fromBf16(uint16_t bits) {
  uint32_t wide = uint32_t(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

/// The nearer of the bf16 on both sides of v, the even one of two as near.
inline uint16_t toBf16(float v) {
  uint32_t bits;
  std::memcpy(&bits, &v, sizeof bits);
  uint16_t low = bits >> 16, high = low + 1;
  if (std::isnan(v))
    return low | 0x40;
  if (std::isinf(v))
    return low;
  // What overflows is as far as the next power of two would be.
  double above = std::isinf(fromBf16(high)) ? std::copysign(std::ldexp(1.0, 128), v)
                                            : fromBf16(high);
  double below = std::fabs(double(v) - fromBf16(low)), up = std::fabs(above - v);
  return below < up || (below == up && low % 2 == 0) ? low : high;
}

inline float fromF16(uint16_t bits) {
  _Float16 value;
  std::memcpy(&value, &bits, sizeof value);
  return static_cast<float>(value);
}

inline uint16_t toF16(float v) {
  auto value = static_cast<_Float16>(v);
  uint16_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

/// The bytes of `values` in a format, rounded.
inline Bytes stored(const std::vector<float> &values, int64_t type) {
  if (type == format::kF32)
    return toBytes(values);
  std::vector<uint16_t> bits;
  for (float v : values)
    bits.push_back(type == format::kBf16 ? toBf16(v) : toF16(v));
  return toBytes(bits);
}

/// What those bytes hold.
inline std::vector<float> loaded(const Bytes &bytes, int64_t type) {
  if (type == format::kF32)
    return fromBytes<float>(bytes);
  std::vector<float> values;
  for (uint16_t bits : fromBytes<uint16_t>(bytes))
    values.push_back(type == format::kBf16 ? fromBf16(bits) : fromF16(bits));
  return values;
}

/// The same values as f32.
inline Bytes widened(const Bytes &bytes, int64_t type) {
  return toBytes(loaded(bytes, type));
}

constexpr int64_t kHalfFormats[] = {format::kBf16, format::kF16};

} // namespace sluice::test
