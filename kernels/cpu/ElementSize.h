#pragma once
// Kernels that only move elements do not care what they are, just how large.

#include "kernels/cpu/Vector.h"

namespace sluice::SLUICE_LEVEL {

/// Calls `body` with a value of the unsigned type of 1, 2, 4 or 8 bytes.
template <typename Body> SLUICE_INLINE void bySize(int64_t elementBytes, Body body) {
  switch (elementBytes) {
  case 1:
    return body(uint8_t{});
  case 2:
    return body(uint16_t{});
  case 4:
    return body(uint32_t{});
  default:
    return body(uint64_t{});
  }
}

} // namespace sluice::SLUICE_LEVEL
