#include "runtime/data/Convert.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

namespace sluice {
namespace {

struct Half {
  uint16_t bits;
};
struct Bfloat {
  uint16_t bits;
};
struct Bool {
  uint8_t byte;
};

/// Calls visit(T{}) with the C++ type of the element type.
template <class Visit> auto withType(DType dtype, Visit visit) {
  switch (dtype) {
  case DType::f32:
    return visit(float{});
  case DType::f64:
    return visit(double{});
  case DType::f16:
    return visit(Half{});
  case DType::bf16:
    return visit(Bfloat{});
  case DType::i8:
    return visit(int8_t{});
  case DType::u8:
    return visit(uint8_t{});
  case DType::i16:
    return visit(int16_t{});
  case DType::u16:
    return visit(uint16_t{});
  case DType::i32:
    return visit(int32_t{});
  case DType::u32:
    return visit(uint32_t{});
  case DType::i64:
    return visit(int64_t{});
  case DType::u64:
    return visit(uint64_t{});
  case DType::i1:
    break;
  }
  return visit(Bool{});
}

double halfToDouble(uint16_t bits) {
  int exponent = bits >> 10 & 0x1f, mantissa = bits & 0x3ff;
  double value = exponent == 0x1f ? (mantissa ? std::numeric_limits<double>::quiet_NaN()
                                              : std::numeric_limits<double>::infinity())
                                  : std::ldexp(exponent ? mantissa + 1024 : mantissa,
                                               (exponent ? exponent : 1) - 25);
  return bits & 0x8000 ? -value : value;
}

/// Rounds a finite double to a float of `mantissaBits` and the given smallest exponent,
/// to nearest with ties to even; what it gives is exact in that format, or too large for
/// it.
double roundTo(double value, int mantissaBits, int minExponent) {
  if (value == 0)
    return value;
  int exponent = std::ilogb(value);
  double unit = std::ldexp(1.0, std::max(exponent, minExponent) - mantissaBits);
  return std::nearbyint(value / unit) * unit;
}

uint16_t doubleToHalf(double value, bool &fits) {
  double rounded = roundTo(value, 10, -14);
  fits = std::abs(rounded) <= 65504;
  uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  double size = std::abs(rounded);
  if (size == 0 || !fits)
    return sign;
  int exponent = std::max(std::ilogb(size), -14);
  int mantissa = static_cast<int>(std::ldexp(size, 10 - exponent));
  return static_cast<uint16_t>(
      sign + (mantissa < 1024 ? mantissa : ((exponent + 15) << 10) + (mantissa - 1024)));
}

uint16_t doubleToBfloat(double value, bool &fits) {
  double rounded = roundTo(value, 7, -126);
  fits = std::abs(rounded) <= std::numeric_limits<float>::max();
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(rounded)) >>
                               16);
}

template <class T> T load(const ElementSource &source, int64_t index) {
  uint8_t bytes[sizeof(T)];
  std::memcpy(bytes, source.data + index * source.step * int64_t(sizeof(T)), sizeof(T));
  if (source.swapped)
    for (size_t i = 0; i < sizeof(T) / 2; ++i)
      std::swap(bytes[i], bytes[sizeof(T) - 1 - i]);
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

/// As a double, or as it is when it is an integer.
template <class T> auto widen(T value) {
  if constexpr (std::is_same_v<T, Half>)
    return halfToDouble(value.bits);
  else if constexpr (std::is_same_v<T, Bfloat>)
    return double(std::bit_cast<float>(uint32_t(value.bits) << 16));
  else if constexpr (std::is_same_v<T, Bool>)
    return uint8_t(value.byte != 0);
  else
    return value;
}

/// Stores a double; false when the type has no such value.
template <class T> bool store(double value, T &out) {
  if (!std::isfinite(value))
    return false;
  bool fits = true;
  if constexpr (std::is_same_v<T, Half>) {
    out.bits = doubleToHalf(value, fits);
  } else if constexpr (std::is_same_v<T, Bfloat>) {
    out.bits = doubleToBfloat(value, fits);
  } else if constexpr (std::is_same_v<T, Bool>) {
    out.byte = value != 0;
    fits = value == 0 || value == 1;
  } else if constexpr (std::is_floating_point_v<T>) {
    fits = std::abs(value) <= double(std::numeric_limits<T>::max());
    out = fits ? static_cast<T>(value) : T(0);
  } else {
    // 2^digits is exact as a double, the largest value of a 64-bit type is not.
    double end = std::ldexp(1.0, std::numeric_limits<T>::digits);
    double begin = std::is_signed_v<T> ? -end : 0;
    fits = value == std::trunc(value) && value >= begin && value < end;
    out = fits ? static_cast<T>(value) : T(0);
  }
  return fits;
}

/// Integers go straight to integers, so that 64-bit ones keep all their bits.
template <class From, class To> bool storeExact(From value, To &out) {
  if constexpr (std::is_integral_v<From> && std::is_integral_v<To>) {
    out = static_cast<To>(value);
    return std::in_range<To>(value);
  } else {
    return store(double(value), out);
  }
}

} // namespace

int64_t convertElements(const ElementSource &source, int64_t count, const AffineMap &map,
                        DType target, void *out) {
  return withType(source.dtype, [&](auto from) {
    return withType(target, [&](auto to) -> int64_t {
      using From = decltype(from);
      using To = decltype(to);
      bool identity = map.identity();
      auto *bytes = static_cast<uint8_t *>(out);
      for (int64_t i = 0; i < count; ++i) {
        auto value = widen(load<From>(source, i));
        To result{};
        if (!(identity ? storeExact(value, result)
                       : store(double(value) * map.factor + map.offset, result)))
          return i;
        std::memcpy(bytes + i * int64_t(sizeof(To)), &result, sizeof(To));
      }
      return -1;
    });
  });
}

std::string elementText(const ElementSource &source, int64_t index) {
  return withType(source.dtype, [&](auto from) {
    return std::to_string(widen(load<decltype(from)>(source, index)));
  });
}

} // namespace sluice
