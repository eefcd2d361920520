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

/// An operand of codes of a few bits (StoredFormats.h), decoded as it is packed. Its type
/// is then what its values are rounded to: f32 (nothing) or bf16. Its strides count
/// elements of the tensor, from its first.
struct CodedAs {
  int64_t format = 0;  ///< number of the StoredFormat; 0: no codes
  int64_t count = 0;   ///< elements of the whole tensor
  int64_t columns = 0; ///< of it as a matrix of dimension 0 by the rest
};

constexpr bool isFormat(int64_t type) { return type >= 0 && type <= format::kF16; }
constexpr int64_t formatBytes(int64_t type) { return type == format::kF32 ? 4 : 2; }

} // namespace sluice
