#pragma once
// Integer arithmetic of the interpreter: elements are kept in int64 and wrap at the width
// of their type.

#include "mlir/IR/BuiltinTypes.h"

#include <cstdint>

namespace sluice::graph {

/// Keeps the low bits that the type has; i1 holds 0 or 1, wider integers are signed.
inline int64_t wrap(uint64_t value, mlir::Type type) {
  const unsigned width = type.getIntOrFloatBitWidth();
  if (width == 1)
    return value & 1;
  return static_cast<int64_t>(value << (64 - width)) >> (64 - width);
}

// Two's complement modulo 2^64, without signed overflow.
inline int64_t addWrap(int64_t a, int64_t b) {
  return static_cast<uint64_t>(a) + static_cast<uint64_t>(b);
}
inline int64_t subWrap(int64_t a, int64_t b) {
  return static_cast<uint64_t>(a) - static_cast<uint64_t>(b);
}
inline int64_t mulWrap(int64_t a, int64_t b) {
  return static_cast<uint64_t>(a) * static_cast<uint64_t>(b);
}

} // namespace sluice::graph
