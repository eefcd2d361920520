#pragma once
// Tensors filled with a value, and smaller ones filled up to a larger shape.

#include "runtime/DType.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice {

/// Every element of `bytes` bytes becomes `value`, converted.
void fillTensor(DType type, uint8_t *data, size_t bytes, double value);

/// Copies a row-major tensor of the shape `given` to the front of one of the shape
/// `full`, no dimension of which is smaller; all other elements become `value`.
void copyFilled(DType type, const uint8_t *source, std::span<const int64_t> given,
                uint8_t *target, std::span<const int64_t> full, double value);

} // namespace sluice
