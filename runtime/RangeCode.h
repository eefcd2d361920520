#pragma once
// 8-bit floating point with the range of a block expanded, as the compiled kernels have
// it: docs/ops.md, range_scale, range_encode and range_decode.

#include <cstdint>
#include <span>

namespace sluice::range_code {

/// Of a block: its largest magnitude, in the last three bits the power.
float scaleOf(std::span<const float> block, bool isPositive);
int8_t encode(float x, float scale, bool isPositive);
float decode(int8_t code, float scale);

} // namespace sluice::range_code
