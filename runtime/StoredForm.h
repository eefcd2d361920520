#pragma once
// How values that updates compute in f32 are stored: as they are, or narrower, with or
// without what completes them. Any form converts into any other by way of the exact f32.

#include "kernels/StoredFormats.h"
#include "runtime/DType.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace sluice {

/// Types whose values convert to and from f32 by themselves.
constexpr bool hasForms(DType type) {
  return type == DType::f32 || type == DType::bf16 || type == DType::f16;
}

/// Elements of the largest block.
constexpr uint64_t maxStoredBlock = 2048;

/// What a tensor has beside it.
enum class Completion : uint8_t {
  nothing,
  low,    // i16: the bits of the f32 are (bits of the bf16 << 16) + low
  master, // the f32 itself, of which the tensor is the nearest value
  scale,  // f32 per block: the tensor has codes (i8) of the dynamic map, of parts of it
  range,  // the same, of 8-bit floating point with its range expanded
};

struct StoredForm {
  DType dtype = DType::f32;
  Completion completion = Completion::nothing;
  uint64_t block = 0;      // with scales: elements of a block, in row-major order
  bool isPositive = false; // with scales: no entry below 0
  /// A parameter or moment in codes of this format (runtime/StoredCodes.h); in files as
  /// f32 values.
  StoredFormat format = StoredFormat::fp32;
  bool hasCodes() const { return format != StoredFormat::fp32; }

  /// Whether its values convert to and from f32. All others are only copied.
  bool converts() const { return hasForms(dtype) || hasBlocks() || hasCodes(); }
  bool hasBlocks() const {
    return completion == Completion::scale || completion == Completion::range;
  }

  /// Whether the f32 of the last update can be had.
  bool isExact() const {
    return (dtype == DType::f32 && !hasCodes()) || completion != Completion::nothing;
  }
  friend bool operator==(const StoredForm &, const StoredForm &) = default;
};

/// Of moments: none is below 0, as passes/MomentForm.cpp has them.
bool isPositiveMoment(std::string_view name);

/// "f32", "bf16 with a split master", "bf16 with an f32 master", "bf16 without a master",
/// "int8 in blocks of 256", "fp8 in blocks of 256".
std::string formText(StoredForm form);

/// Bytes of what completes `count` elements.
uint64_t completionBytes(StoredForm form, uint64_t count);

/// The bytes of `count` elements, unaligned in general.
template <class Byte> struct StoredTensor {
  StoredForm form;
  uint64_t count = 0;
  Byte *data = nullptr, *completion = nullptr;
};

/// The f32 values from element `first` on, bit for bit where the form is exact. Of a form
/// with blocks whole ones are read and written.
void readExact(const StoredTensor<const uint8_t> &from, uint64_t first,
               std::span<float> values);

/// Stores f32 values from element `first` on; what no completion keeps is rounded to the
/// nearest, ties to even. Gives how many values were changed by that.
uint64_t writeExact(const StoredTensor<uint8_t> &to, uint64_t first,
                    std::span<const float> values);

/// Both have the same count and do not overlap. Equal forms are copied. Gives how many
/// values were rounded.
uint64_t convertStored(const StoredTensor<const uint8_t> &from,
                       const StoredTensor<uint8_t> &to);

} // namespace sluice
