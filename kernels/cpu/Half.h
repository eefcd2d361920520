#pragma once
// Elements of an operand as f32, whatever it stores: F32, Bf16 and F16 are what kernels
// are templated on.
//
// bf16 is the upper half of an f32, rounded in integers (the AVX-512 instruction for it
// flushes denormals); f16 has exact instructions. Both keep denormals, and a NaN stays
// one, quiet.

#include "kernels/Formats.h"
#include "kernels/cpu/Vector.h"

namespace sluice::SLUICE_LEVEL {

struct F32 {
  using Element = float;
  static constexpr int64_t kFormat = format::kF32;
  static float load1(const float *p) { return *p; }
  static __m128 load4(const float *p) { return _mm_loadu_ps(p); }
  static __m256 load8(const float *p) { return _mm256_loadu_ps(p); }
  static void store1(float *p, float v) { *p = v; }
  static void store8(float *p, __m256 v) { _mm256_storeu_ps(p, v); }
  /// Elements 0 to 3 of two rows, then 4 to 7.
  static void loadPair(const float *low, const float *high, __m256 &first,
                       __m256 &second) {
    first = _mm256_insertf128_ps(_mm256_castps128_ps256(load4(low)), load4(high), 1);
    second =
        _mm256_insertf128_ps(_mm256_castps128_ps256(load4(low + 4)), load4(high + 4), 1);
  }
};

SLUICE_INLINE __m128i load8Bytes(const void *p) {
  return _mm_loadl_epi64(static_cast<const __m128i *>(p));
}
SLUICE_INLINE __m128i load16Bytes(const void *p) {
  return _mm_loadu_si128(static_cast<const __m128i *>(p));
}

struct Bf16 {
  using Element = uint16_t;
  static constexpr int64_t kFormat = format::kBf16;
  static float load1(const uint16_t *p) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(*p) << 16);
  }
  static __m128 load4(const uint16_t *p) {
    return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), load8Bytes(p)));
  }
  static __m256 load8(const uint16_t *p) {
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(load16Bytes(p)), 16));
  }
  static void store1(uint16_t *p, float v) {
    uint32_t bits = __builtin_bit_cast(uint32_t, v);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    *p = static_cast<uint16_t>(v != v ? bits >> 16 | 0x40 : rounded);
  }
  static void store8(uint16_t *p, __m256 v) {
    __m256i bits = _mm256_castps_si256(v), upper = _mm256_srli_epi32(bits, 16);
    __m256i half = _mm256_add_epi32(_mm256_set1_epi32(0x7fff),
                                    _mm256_and_si256(upper, _mm256_set1_epi32(1)));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
    __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    __m256i isNan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    __m256i y = _mm256_blendv_epi8(rounded, quiet, isNan);
    _mm_storeu_si128(
        reinterpret_cast<__m128i *>(p),
        _mm_packus_epi32(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1)));
  }
  static void loadPair(const uint16_t *low, const uint16_t *high, __m256 &first,
                       __m256 &second) {
    __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(load16Bytes(low)),
                                           load16Bytes(high), 1);
    first = _mm256_castsi256_ps(_mm256_unpacklo_epi16(_mm256_setzero_si256(), both));
    second = _mm256_castsi256_ps(_mm256_unpackhi_epi16(_mm256_setzero_si256(), both));
  }
};

struct F16 {
  using Element = uint16_t;
  static constexpr int64_t kFormat = format::kF16;
  static constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  static float load1(const uint16_t *p) { return _cvtsh_ss(*p); }
  static __m128 load4(const uint16_t *p) { return _mm_cvtph_ps(load8Bytes(p)); }
  static __m256 load8(const uint16_t *p) { return _mm256_cvtph_ps(load16Bytes(p)); }
  static void store1(uint16_t *p, float v) { *p = _cvtss_sh(v, kNearest); }
  static void store8(uint16_t *p, __m256 v) {
    _mm_storeu_si128(reinterpret_cast<__m128i *>(p), _mm256_cvtps_ph(v, kNearest));
  }
  static void loadPair(const uint16_t *low, const uint16_t *high, __m256 &first,
                       __m256 &second) {
    __m128i a = load16Bytes(low), b = load16Bytes(high);
    first = _mm256_cvtph_ps(_mm_unpacklo_epi64(a, b));
    second = _mm256_cvtph_ps(_mm_unpackhi_epi64(a, b));
  }
};

/// Lanes [low, high) of a vector, the others 0; touches no other elements.
template <typename S>
SLUICE_INLINE Vec loadLanes(const typename S::Element *p, int64_t low, int64_t high) {
  if constexpr (S::kFormat == format::kF32) {
    return load(p, lanes(low, high));
  } else {
#if defined(__AVX512F__)
    __m256i raw = _mm256_maskz_loadu_epi16(lanes(low, high), p);
    if constexpr (S::kFormat == format::kF16)
      return _mm512_cvtph_ps(raw);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(raw), 16));
#else
    if (low <= 0 && high >= kLanes)
      return S::load8(p);
    alignas(16) uint16_t copy[kLanes] = {};
    for (int64_t i = low < 0 ? 0 : low; i < high && i < kLanes; ++i)
      copy[i] = p[i];
    return S::load8(copy);
#endif
  }
}

/// Calls `body` with what reads elements of `type`.
template <typename Body> SLUICE_INLINE void byFormat(int64_t type, Body body) {
  switch (type) {
  case format::kBf16:
    return body(Bf16{});
  case format::kF16:
    return body(F16{});
  default:
    return body(F32{});
  }
}

struct CodedTensor;

/// An operand of any format, from some element on. One of codes keeps its data and counts
/// elements (Codes.h).
struct Operand {
  const void *data;
  int64_t type;
  const CodedTensor *coded = nullptr;
  int64_t first = 0;

  Operand at(int64_t elements) const {
    if (coded)
      return {data, type, coded, first + elements};
    return {static_cast<const uint8_t *>(data) + elements * formatBytes(type), type,
            nullptr, 0};
  }
  template <typename S> const typename S::Element *as() const {
    return static_cast<const typename S::Element *>(data);
  }
};

/// A result of any format.
struct Result {
  void *data;
  int64_t type;

  Result at(int64_t elements) const {
    return {static_cast<uint8_t *>(data) + elements * formatBytes(type), type};
  }
  template <typename S> typename S::Element *as() const {
    return static_cast<typename S::Element *>(data);
  }
};

template <typename S>
SLUICE_INLINE void widen(const typename S::Element *from, float *to, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(to + i, S::load8(from + i));
  if (i + 4 <= n) {
    _mm_storeu_ps(to + i, S::load4(from + i));
    i += 4;
  }
  for (; i < n; ++i)
    to[i] = S::load1(from + i);
}

/// Element i of an operand.
SLUICE_INLINE float elementOf(const Operand &from, int64_t i) {
  float v = 0;
  byFormat(from.type, [&]<typename S>(S) { v = S::load1(from.as<S>() + i); });
  return v;
}

#if defined(__AVX512F__)
SLUICE_INLINE void store16(Bf16, uint16_t *p, __m512 v) {
  __m512i bits = _mm512_castps_si512(v), upper = _mm512_srli_epi32(bits, 16);
  __m512i half = _mm512_add_epi32(_mm512_set1_epi32(0x7fff),
                                  _mm512_and_si512(upper, _mm512_set1_epi32(1)));
  __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, half), 16);
  __m512i y = _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), upper,
                                   _mm512_set1_epi32(0x40));
  _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), _mm512_cvtepi32_epi16(y));
}
SLUICE_INLINE void store16(F16, uint16_t *p, __m512 v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), _mm512_cvtps_ph(v, F16::kNearest));
}
SLUICE_INLINE void store16(F32, float *p, __m512 v) { _mm512_storeu_ps(p, v); }
#endif

template <typename S>
SLUICE_INLINE void narrow(const float *from, typename S::Element *to, int64_t n) {
  int64_t i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= n; i += 16)
    store16(S{}, to + i, _mm512_loadu_ps(from + i));
#endif
  for (; i + 8 <= n; i += 8)
    S::store8(to + i, _mm256_loadu_ps(from + i));
  for (; i < n; ++i)
    S::store1(to + i, from[i]);
}

/// `n` floats into a result of any format.
SLUICE_INLINE void storeFloats(const float *from, const Result &to, int64_t n) {
  byFormat(to.type, [&]<typename S>(S) { narrow<S>(from, to.as<S>(), n); });
}

/// Calls body(reader, elements): what windows pass over again and again is widened once
/// if it is small enough.
template <typename S, typename Body>
SLUICE_INLINE void widenedOnce(const typename S::Element *x, int64_t size, Body body) {
  constexpr int64_t kMost = 16384; // 64 KB of stack
  if (S::kFormat == format::kF32 || size > kMost)
    return body(S{}, x);
  alignas(64) float plane[kMost];
  widen<S>(x, plane, size);
  body(F32{}, static_cast<const float *>(plane));
}

} // namespace sluice::SLUICE_LEVEL
