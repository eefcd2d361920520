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
/// Lanes [low, high), clipped to the vector.
using Mask = __mmask16;
SLUICE_INLINE Mask lanes(int64_t low, int64_t high) {
  uint32_t below = low <= 0 ? 0 : low >= 16 ? 0xffff : (1u << low) - 1;
  uint32_t upTo = high <= 0 ? 0 : high >= 16 ? 0xffff : (1u << high) - 1;
  return static_cast<Mask>(upTo & ~below);
}
/// Touches no memory of other lanes; they are 0.
SLUICE_INLINE Vec load(const float *p, Mask m) { return _mm512_maskz_loadu_ps(m, p); }
SLUICE_INLINE void store(float *p, Vec v, Mask m) { _mm512_mask_storeu_ps(p, m, v); }
/// Other lanes keep c.
SLUICE_INLINE Vec fma(Vec a, Vec b, Vec c, Mask m) {
  return _mm512_mask3_fmadd_ps(a, b, c, m);
}
#else
using Vec = __m256;
constexpr int kLanes = 8;
SLUICE_INLINE Vec load(const float *p) { return _mm256_loadu_ps(p); }
SLUICE_INLINE void store(float *p, Vec v) { _mm256_storeu_ps(p, v); }
SLUICE_INLINE Vec splat(float x) { return _mm256_set1_ps(x); }
SLUICE_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
SLUICE_INLINE Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
SLUICE_INLINE Vec zero() { return _mm256_setzero_ps(); }
using Mask = __m256i;
SLUICE_INLINE Mask lanes(int64_t low, int64_t high) {
  auto clip = [](int64_t n) {
    return _mm256_set1_epi32(n < 0 ? 0 : n > 8 ? 8 : static_cast<int>(n));
  };
  __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_andnot_si256(_mm256_cmpgt_epi32(clip(low), lane),
                             _mm256_cmpgt_epi32(clip(high), lane));
}
SLUICE_INLINE Vec load(const float *p, Mask m) { return _mm256_maskload_ps(p, m); }
SLUICE_INLINE void store(float *p, Vec v, Mask m) { _mm256_maskstore_ps(p, m, v); }
SLUICE_INLINE Vec fma(Vec a, Vec b, Vec c, Mask m) {
  return _mm256_blendv_ps(c, _mm256_fmadd_ps(a, b, c), _mm256_castsi256_ps(m));
}
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
