#pragma once
// The arithmetic of products of bf16 by bf16.

#include "kernels/cpu/Vector.h"

namespace sluice::SLUICE_LEVEL {

/// Products of bf16 by bf16 take denormals as zeros, operands and results alike, as the
/// instructions for them do. In force while it lives.
class FlushDenormals {
public:
  explicit FlushDenormals(bool flush) : former(_mm_getcsr()) {
    constexpr unsigned kToZero = 0x8040; // results, operands
    if (flush)
      _mm_setcsr(former | kToZero);
  }
  ~FlushDenormals() { _mm_setcsr(former); }
  FlushDenormals(const FlushDenormals &) = delete;
  FlushDenormals &operator=(const FlushDenormals &) = delete;

private:
  unsigned former;
};

} // namespace sluice::SLUICE_LEVEL
