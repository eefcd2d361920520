#pragma once
// The exponential of a softmax, of our own so that no library decides about bits: that of
// generated code (ir/graph/VectorMath.cpp) up to about 0.

#include "kernels/cpu/Half.h"

namespace sluice::SLUICE_LEVEL {

#if defined(__AVX512F__)
SLUICE_INLINE Vec sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
SLUICE_INLINE Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
SLUICE_INLINE Vec div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
/// b where one of them is a NaN.
SLUICE_INLINE Vec larger(Vec a, Vec b) { return _mm512_max_ps(a, b); }
SLUICE_INLINE Vec select(Mask m, Vec a, Vec b) { return _mm512_mask_blend_ps(m, b, a); }
SLUICE_INLINE Mask isEqual(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
SLUICE_INLINE Mask isBelow(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
using Bits = __m512i;
SLUICE_INLINE Bits bitsOf(Vec x) { return _mm512_castps_si512(x); }
SLUICE_INLINE Vec realOf(Bits x) { return _mm512_castsi512_ps(x); }
SLUICE_INLINE Bits allBits(uint32_t x) {
  return _mm512_set1_epi32(static_cast<int32_t>(x));
}
SLUICE_INLINE Bits addBits(Bits a, Bits b) { return _mm512_add_epi32(a, b); }
SLUICE_INLINE Bits andBits(Bits a, Bits b) { return _mm512_and_si512(a, b); }
template <int N> SLUICE_INLINE Bits shiftLeft(Bits a) { return _mm512_slli_epi32(a, N); }
template <int N> SLUICE_INLINE Bits shiftRight(Bits a) { return _mm512_srai_epi32(a, N); }
SLUICE_INLINE Vec throughF16(Vec x) {
  return _mm512_cvtph_ps(_mm512_cvtps_ph(x, F16::kNearest));
}
#else
SLUICE_INLINE Vec sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
SLUICE_INLINE Vec mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
SLUICE_INLINE Vec div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
SLUICE_INLINE Vec larger(Vec a, Vec b) { return _mm256_max_ps(a, b); }
SLUICE_INLINE Vec select(Mask m, Vec a, Vec b) {
  return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(m));
}
SLUICE_INLINE Mask isEqual(Vec a, Vec b) {
  return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_EQ_OQ));
}
SLUICE_INLINE Mask isBelow(Vec a, Vec b) {
  return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
using Bits = __m256i;
SLUICE_INLINE Bits bitsOf(Vec x) { return _mm256_castps_si256(x); }
SLUICE_INLINE Vec realOf(Bits x) { return _mm256_castsi256_ps(x); }
SLUICE_INLINE Bits allBits(uint32_t x) {
  return _mm256_set1_epi32(static_cast<int32_t>(x));
}
SLUICE_INLINE Bits addBits(Bits a, Bits b) { return _mm256_add_epi32(a, b); }
SLUICE_INLINE Bits andBits(Bits a, Bits b) { return _mm256_and_si256(a, b); }
template <int N> SLUICE_INLINE Bits shiftLeft(Bits a) { return _mm256_slli_epi32(a, N); }
template <int N> SLUICE_INLINE Bits shiftRight(Bits a) { return _mm256_srai_epi32(a, N); }
SLUICE_INLINE Vec throughF16(Vec x) {
  return _mm256_cvtph_ps(_mm256_cvtps_ph(x, F16::kNearest));
}
#endif

SLUICE_INLINE Vec horner(Vec sum, Vec x, float coefficient) {
  return fma(sum, x, splat(coefficient));
}

/// e^x for x at most a little above 0; 0 below -87.33, before results are denormal. NaN
/// passes.
SLUICE_INLINE Vec expOf(Vec x) {
  const Vec least = splat(-87.33f), magic = splat(0x1.8p23f);
  Vec inside = larger(least, x);
  Vec shifted = fma(inside, splat(1.4426950408889634f), magic);
  Vec whole = sub(shifted, magic);
  Vec r = fma(whole, splat(-0x1.62e4p-1f), inside);
  r = fma(whole, splat(-1.42860682030941723e-6f), r);
  Vec p = horner(splat(1.9891080463998843e-4f), r, 1.3933730715792083e-3f);
  p = horner(p, r, 8.333310844647862e-3f);
  p = horner(p, r, 4.166646419740569e-2f);
  p = horner(p, r, 0.16666666681704215f);
  p = horner(p, r, 0.500000001353873f);
  p = horner(p, r, 1.0f);
  p = horner(p, r, 1.0f);
  // The low bits of `shifted` hold the exponent; those above fall out.
  Vec power = realOf(shiftLeft<23>(addBits(bitsOf(shifted), allBits(127))));
  return select(isBelow(x, least), zero(), mul(p, power));
}

/// x rounded to a format's type.
template <typename S> SLUICE_INLINE Vec roundedTo(Vec x) {
  if constexpr (S::kFormat == format::kF16)
    return throughF16(x);
  if constexpr (S::kFormat != format::kBf16)
    return x;
  Bits bits = bitsOf(x);
  Bits even = andBits(shiftRight<16>(bits), allBits(1));
  Bits up = addBits(addBits(bits, allBits(0x7fff)), even);
  Vec y = realOf(andBits(up, allBits(0xffff0000u)));
  return select(isEqual(x, x), y, x);
}

} // namespace sluice::SLUICE_LEVEL
