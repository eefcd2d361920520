#include "runtime/RangeCode.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace sluice::range_code {

namespace {

constexpr float largestCode = 448, leastNormal = 0x1p-126f;
constexpr int powers = 6, plainPower = 2; // |x|^(2^(n - 2)), n = 0 to 5
/// (2^-9 / 448)^(1 / k): from there on the power keeps all values of a block.
constexpr float leastRatio[powers] = {
    0, 1.9006583e-11f, 4.359654e-06f, 2.0879784e-03f, 4.5694403e-02f, 2.1376249e-01f};

int powerOf(float scale) {
  return std::min<int>(std::bit_cast<uint32_t>(scale) & 7, powers - 1);
}

float times(float u, int squares) {
  for (; squares > 0; --squares)
    u = u * u;
  for (; squares < 0; ++squares)
    u = std::sqrt(u);
  return u;
}

} // namespace

float scaleOf(std::span<const float> block, bool isPositive) {
  float largest = 0, least = INFINITY;
  for (float x : block) {
    float size = std::fabs(x);
    if (!(size <= largest)) // a NaN stays
      largest = std::isnan(largest) ? largest : size;
    if (size > 0 && size < least)
      least = size;
  }
  if (largest < leastNormal)
    return 0;
  float ratio = least / largest;
  int power = isPositive ? 0 : plainPower;
  for (int n = power + 1; n < powers; ++n)
    power = ratio >= leastRatio[n] ? n : power;
  return std::bit_cast<float>((std::bit_cast<uint32_t>(largest) & ~7u) |
                              static_cast<uint32_t>(power));
}

int8_t encode(float x, float scale, bool isPositive) {
  if (!(scale >= leastNormal))
    return 0;
  float u = std::fabs(x) / scale;
  float v = times(u < 1 ? u : 1, powerOf(scale) - plainPower) * largestCode;
  uint32_t bits = std::bit_cast<uint32_t>(v);
  int code = v < 0x1p-6f
                 ? static_cast<int>(std::bit_cast<uint32_t>(v * 512 + 0x1p23f) -
                                    std::bit_cast<uint32_t>(0x1p23f))
                 : static_cast<int>((bits + 0x7FFFF + (bits >> 20 & 1)) >> 20) - 120 * 8;
  if (isPositive && code < 1 && x > 0)
    code = 1;
  return static_cast<int8_t>(!isPositive && x < 0 && code > 0 ? code - 128 : code);
}

float decode(int8_t code, float scale) {
  int size = code & 0x7F;
  float v = size < 8 ? static_cast<float>(size) * 0x1p-9f
                     : std::bit_cast<float>(static_cast<uint32_t>(size + 120 * 8) << 20);
  float x = times(v / largestCode, plainPower - powerOf(scale)) * scale;
  return code < 0 ? -x : x;
}

} // namespace sluice::range_code
