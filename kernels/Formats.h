#pragma once
// How an operand stores its elements. Kernels compute in f32 whatever it is: 16-bit
// elements are widened where they are read, results rounded once (to nearest, ties to
// even) where they are written.

#include <cstdint>

namespace sluice {

/// Values of the parameters called ...Type.
namespace format {
constexpr int64_t kF32 = 0, kBf16 = 1, kF16 = 2;
} // namespace format

constexpr bool isFormat(int64_t type) { return type >= 0 && type <= format::kF16; }
constexpr int64_t formatBytes(int64_t type) { return type == format::kF32 ? 4 : 2; }

} // namespace sluice
