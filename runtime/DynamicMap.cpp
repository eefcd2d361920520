#include "runtime/DynamicMap.h"

#include <cmath>
#include <cstdlib>

namespace sluice {

/// Decade i has 2^i parts (with `isPositive` 2^(i + 1)); its values are their middles, in
/// f32 with one rounding each for the width and for the value.
DynamicMap::DynamicMap(bool isPositive)
    : isPositive(isPositive), last(isPositive ? 255 : 128), values{} {
  constexpr int decades = 7;
  constexpr float floors[decades] = {1e-7f, 1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f};
  constexpr double tops[decades] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
  int number = 1; // behind 0
  for (int decade = 0; decade < decades; ++decade) {
    int parts = 1 << (decade + isPositive);
    auto width = static_cast<float>(0.9 * tops[decade] / parts);
    for (int part = 0; part < parts; ++part)
      values[static_cast<size_t>(number++)] =
          std::fmaf(static_cast<float>(part) + 0.5f, width, floors[decade]);
  }
  values[static_cast<size_t>(last)] = 1;
}

float DynamicMap::decode(int8_t code) const {
  if (isPositive)
    return values[static_cast<uint8_t>(code)];
  float value = values[static_cast<size_t>(std::abs(int{code}))];
  return code < 0 && code != -128 ? -value : value;
}

int8_t DynamicMap::encode(float x) const {
  float size = isPositive ? x : std::fabs(x);
  int low = 0, high = last;
  while (low < high) {
    int middle = (low + high + 1) / 2;
    auto at = static_cast<size_t>(middle);
    if (size >= 0.5f * (values[at - 1] + values[at]))
      low = middle;
    else
      high = middle - 1;
  }
  if (isPositive || x >= 0)
    return static_cast<int8_t>(low);
  return static_cast<int8_t>(low == last ? 1 - last : -low); // -1 has no code
}

} // namespace sluice
