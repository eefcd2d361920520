#pragma once
// Codes of floating point with few bits, one at a time: the reference of the compiled
// kernels (ir/graph/StoredLanes.h), which compute the same bits in vectors.

#include <bit>
#include <cstdint>

namespace sluice {

/// A sign, an exponent with subnormals below it, and a mantissa. Codes are finite but for
/// NaN (written without a sign), where there is one; what is larger counts as the
/// largest.
struct Minifloat {
  int mantissaBits;
  int bias;
  int bits; // of a code, the sign included
  float largest;
  uint32_t nan; // code without its sign; 0: none, and a NaN becomes 0

  constexpr int dropped() const { return 23 - mantissaBits; }
  constexpr uint32_t signBit() const { return 1u << (bits - 1); }
  /// 2^(1 - bias): from there on numbers have a hidden bit.
  constexpr float leastNormal() const {
    return std::bit_cast<float>(static_cast<uint32_t>(128 - bias) << 23);
  }
  /// The step below that.
  constexpr float unit() const {
    return std::bit_cast<float>(static_cast<uint32_t>(128 - bias - mantissaBits) << 23);
  }
};

namespace minifloat {

inline constexpr Minifloat e4m3 = {3, 7, 8, 448, 0x7F};
inline constexpr Minifloat e5m2 = {2, 15, 8, 57344, 0x7F};
inline constexpr Minifloat e2m1 = {1, 1, 4, 6, 0};

/// How the place between two values is decided.
struct Rounding {
  bool isStochastic = false; // else to nearest, ties to even
  float noise = 0;           // uniform in [0, 1): up where noise >= 1 - place
};

inline constexpr uint32_t encode(const Minifloat &format, float x, Rounding rounding) {
  uint32_t bits = std::bit_cast<uint32_t>(x);
  uint32_t sign = bits >> 31 ? format.signBit() : 0;
  uint32_t size = bits & 0x7FFFFFFF;
  if (size > 0x7F800000)
    return format.nan;
  float a = std::bit_cast<float>(size);
  a = a < format.largest ? a : format.largest;
  uint32_t code = 0;
  if (a < format.leastNormal()) {
    // Units below 2^mantissaBits; the sum with 2^23 rounds to nearest even.
    float units = a * (1 / format.unit());
    auto below = static_cast<uint32_t>(units);
    float place = units - static_cast<float>(below);
    code = rounding.isStochastic ? below + (place + rounding.noise >= 1)
                                 : std::bit_cast<uint32_t>(units + 0x1p23f) -
                                       std::bit_cast<uint32_t>(0x1p23f);
  } else {
    int dropped = format.dropped();
    uint32_t half = (1u << (dropped - 1)) - 1, word = std::bit_cast<uint32_t>(a);
    uint32_t added =
        rounding.isStochastic
            ? static_cast<uint32_t>(rounding.noise * static_cast<float>(1u << dropped))
            : half + (word >> dropped & 1);
    code = ((word + added) >> dropped) -
           (static_cast<uint32_t>(127 - format.bias) << format.mantissaBits);
  }
  return sign | code;
}

inline constexpr float decode(const Minifloat &format, uint32_t code) {
  uint32_t size = code & (format.signBit() - 1);
  float sign = code & format.signBit() ? -1.0f : 1.0f;
  if (format.nan && size == format.nan)
    return std::bit_cast<float>(0x7FC00000u);
  if (size < 1u << format.mantissaBits)
    return sign * (static_cast<float>(size) * format.unit());
  size += static_cast<uint32_t>(127 - format.bias) << format.mantissaBits;
  return sign * std::bit_cast<float>(size << format.dropped());
}

/// Codes of powers of two with a byte of exponent (E8M0): 2^(code - 127), 255 is NaN.
inline constexpr uint32_t noPower = 255;
inline constexpr float powerOf(uint32_t code) {
  return std::bit_cast<float>(code == noPower ? 0x7FC00000u : code << 23);
}

/// The least power of two that brings magnitudes up to `amax` within the format; not
/// below 2^-126, so that it stays a normal number. NaN for infinity and NaN.
inline constexpr uint32_t powerCode(const Minifloat &format, float amax) {
  uint32_t bits = std::bit_cast<uint32_t>(amax) & 0x7FFFFFFF;
  if (bits >= 0x7F800000)
    return noPower;
  // Mantissas above that of the format's largest number need one power more.
  uint32_t largest = std::bit_cast<uint32_t>(format.largest);
  uint32_t carry = 0x7FFFFF - (largest & 0x7FFFFF), exponent = (largest >> 23) - 127;
  uint32_t power = (bits + carry) >> 23;
  return power > exponent ? power - exponent : 1;
}

/// `amax` over `largest`; 0 below 2^-126, where quotients by it could overflow.
inline constexpr float linearScale(float amax, float largest) {
  float scale = amax / largest;
  return scale < 0x1p-126f ? 0 : scale;
}

/// x times the inverse of a scale, which kernels take once for many x. Below 2^-126 it
/// may not be finite, and is 0; the sign of x stays.
inline constexpr float scaled(float x, float scale) {
  return x * (scale < 0x1p-126f ? 0 : 1 / scale);
}

} // namespace minifloat
} // namespace sluice
