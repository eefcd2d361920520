#pragma once
// Registers of one feature level. Included only by the files that are compiled once per
// level: everything here and in its users lives in namespace sluice::v3 or sluice::v4
// (SLUICE_LEVEL), so that no inline function of one level can replace that of another at
// link time. For the same reason those files use no function templates of the standard
// library.

#include <cstdint>
#include <cstring>
#include <immintrin.h>

namespace sluice::SLUICE_LEVEL {

#define SLUICE_INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)
using Vec = __m512;
constexpr int kLanes = 16;
SLUICE_INLINE Vec load(const float *p) { return _mm512_loadu_ps(p); }
SLUICE_INLINE void store(float *p, Vec v) { _mm512_storeu_ps(p, v); }
SLUICE_INLINE Vec splat(float x) { return _mm512_set1_ps(x); }
SLUICE_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
SLUICE_INLINE Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
SLUICE_INLINE Vec zero() { return _mm512_setzero_ps(); }
#else
using Vec = __m256;
constexpr int kLanes = 8;
SLUICE_INLINE Vec load(const float *p) { return _mm256_loadu_ps(p); }
SLUICE_INLINE void store(float *p, Vec v) { _mm256_storeu_ps(p, v); }
SLUICE_INLINE Vec splat(float x) { return _mm256_set1_ps(x); }
SLUICE_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
SLUICE_INLINE Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
SLUICE_INLINE Vec zero() { return _mm256_setzero_ps(); }
#endif

SLUICE_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
SLUICE_INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
SLUICE_INLINE int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <typename P> SLUICE_INLINE P readParams(const int64_t *params) {
  P p;
  std::memcpy(static_cast<void *>(&p), params, sizeof(P));
  return p;
}

} // namespace sluice::SLUICE_LEVEL
