#pragma once
// The floating-point environment every kernel runs in: round to nearest, no flushing of
// denormals, no traps. A host library linked with -ffast-math may have left something
// else, and the bits would change.

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sluice {

/// Sets the mode of this thread and restores the former one.
class FloatMode {
public:
#if defined(__x86_64__)
  FloatMode() : former(_mm_getcsr()) { _mm_setcsr(0x1f80); }
  ~FloatMode() { _mm_setcsr(former); }
#endif
  FloatMode(const FloatMode &) = delete;
  FloatMode &operator=(const FloatMode &) = delete;

private:
  unsigned former = 0;
};

} // namespace sluice
