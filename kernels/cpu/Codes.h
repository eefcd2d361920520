#pragma once
// Operands that are codes of a few bits with scales beside them
// (kernels/StoredFormats.h). Products decode them piece by piece as they pack: what a
// code stands for, times the scale of its block in f32, is rounded to bf16 where the
// operand is of that type. The bits are those of decoding the whole tensor before
// (StoredFormats.cpp, decodeTensor).

#include "kernels/StoredFormats.h"
#include "kernels/cpu/Half.h"

namespace sluice::SLUICE_LEVEL {

struct CodedTensor {
  const uint8_t *codes;
  const void *scales; ///< f32 or bytes, by block
  const float *whole; ///< scale of the tensor under nvfp4
  CodedAs as;
};

/// A sign, `Exponent` bits and `Mantissa` bits (kernels/Minifloat.h).
template <int Mantissa, int Bias, int Bits, bool HasNan>
SLUICE_INLINE float valueOfCode(uint32_t code) {
  constexpr uint32_t kSign = 1u << (Bits - 1), kHidden = 1u << Mantissa;
  constexpr float kUnit =
      __builtin_bit_cast(float, static_cast<uint32_t>(128 - Bias - Mantissa) << 23);
  uint32_t size = code & (kSign - 1);
  float below = static_cast<float>(static_cast<int32_t>(size)) * kUnit;
  uint32_t from = (size << (23 - Mantissa)) + (static_cast<uint32_t>(127 - Bias) << 23);
  uint32_t bits = size < kHidden ? __builtin_bit_cast(uint32_t, below) : from;
  bits |= (code & kSign) << (32 - Bits);
  if constexpr (HasNan)
    bits = size == 0x7F ? 0x7FC00000u : bits;
  return __builtin_bit_cast(float, bits);
}

/// `count` codes from a byte on, of 4 bits `shift` bits up.
template <int Mantissa, int Bias, int Bits, bool HasNan>
static void decodeCodes(const uint8_t *codes, int shift, int64_t count, float scale,
                        float *to) {
  for (int64_t i = 0; i < count; ++i)
    to[i] = valueOfCode<Mantissa, Bias, Bits, HasNan>(static_cast<uint32_t>(codes[i]) >>
                                                      shift) *
            scale;
}

/// A stretch of a tensor within one block.
struct Stretch {
  int64_t block, length;
};

SLUICE_INLINE Stretch stretchFrom(const CodedAs &as, int64_t first) {
  auto alongRow = [&](int64_t size) {
    return Stretch{first / size, size - first % size};
  };
  switch (static_cast<StoredFormat>(as.format)) {
  case StoredFormat::e4m3Row:
    return alongRow(128);
  case StoredFormat::mxfp8:
  case StoredFormat::mxfp4:
    return alongRow(32);
  case StoredFormat::nvfp4:
    return alongRow(16);
  case StoredFormat::e4m3Tile: {
    int64_t row = first / as.columns, column = first % as.columns;
    int64_t height = least(128, as.count / as.columns), width = least(128, as.columns);
    return {row / height * (as.columns / width) + column / width, width - column % width};
  }
  default:
    return {0, as.count - first};
  }
}

SLUICE_INLINE float scaleOfBlock(const CodedTensor &t, int64_t block) {
  auto *bytes = static_cast<const uint8_t *>(t.scales);
  switch (static_cast<StoredFormat>(t.as.format)) {
  case StoredFormat::mxfp8:
  case StoredFormat::mxfp4: {
    uint32_t code = bytes[block];
    return __builtin_bit_cast(float, code == 255 ? 0x7FC00000u : code << 23);
  }
  case StoredFormat::nvfp4:
    return valueOfCode<3, 7, 8, true>(bytes[block]) * *t.whole;
  default:
    return static_cast<const float *>(t.scales)[block];
  }
}

/// Elements [first, first + count).
static void decodeRun(const CodedTensor &t, int64_t first, int64_t count, float *to) {
  auto format = static_cast<StoredFormat>(t.as.format);
  bool isFour = format == StoredFormat::mxfp4 || format == StoredFormat::nvfp4;
  int64_t half = t.as.count / 2;
  for (int64_t end = first + count; first < end;) {
    Stretch run = stretchFrom(t.as, first);
    int64_t length = least(run.length, end - first);
    float scale = scaleOfBlock(t, run.block);
    if (isFour) {
      bool isUpper = first >= half;
      if (!isUpper)
        length = least(length, half - first);
      decodeCodes<1, 1, 4, false>(t.codes + (isUpper ? first - half : first),
                                  isUpper ? 4 : 0, length, scale, to);
    } else if (format == StoredFormat::e5m2) {
      decodeCodes<2, 15, 8, true>(t.codes + first, 0, length, scale, to);
    } else {
      decodeCodes<3, 7, 8, true>(t.codes + first, 0, length, scale, to);
    }
    first += length, to += length;
  }
}

/// Decoding keeps denormals, whatever the product does with them. In force while it
/// lives.
class KeepDenormals {
public:
  KeepDenormals() : former(_mm_getcsr()) { _mm_setcsr(former & ~0x8040u); }
  ~KeepDenormals() { _mm_setcsr(former); }
  KeepDenormals(const KeepDenormals &) = delete;
  KeepDenormals &operator=(const KeepDenormals &) = delete;

private:
  unsigned former;
};

constexpr int64_t kPieceSteps = 32; ///< of k; even, since packing takes pairs
constexpr int64_t kPieceRows = 288; ///< gemm::kBlockRows

/// Decoded elements: row i, step s at data[i * row + s * col], steps from `first` on.
template <typename E> struct Piece {
  const E *data;
  int64_t row, col;
  int64_t first, steps;
};

/// `count` elements, `stride` apart, as `E`: f32, or bf16.
template <typename E>
SLUICE_INLINE void decodeAlong(const Operand &from, int64_t at, int64_t stride,
                               int64_t count, E *to) {
  alignas(64) float wide[kPieceRows];
  float *values = wide;
  if constexpr (sizeof(E) == sizeof(float))
    values = to;
  if (stride == 1)
    decodeRun(*from.coded, from.first + at, count, values);
  else
    for (int64_t i = 0; i < count; ++i)
      decodeRun(*from.coded, from.first + at + i * stride, 1, values + i);
  if constexpr (sizeof(E) != sizeof(float)) {
    narrow<Bf16>(wide, to, count);
  } else if (from.type == format::kBf16) {
    for (int64_t i = 0; i < count; ++i) {
      uint16_t rounded;
      Bf16::store1(&rounded, values[i]);
      values[i] = Bf16::load1(&rounded);
    }
  }
}

/// Up to 288 rows and k steps of a coded operand, by pieces of 32 steps.
template <typename E, typename Body>
SLUICE_INLINE void decodePieces(const Operand &from, int64_t row, int64_t col,
                                int64_t rows, int64_t k, Body body) {
  alignas(64) E piece[kPieceRows * kPieceSteps];
  for (int64_t first = 0; first < k; first += kPieceSteps) {
    int64_t steps = least(kPieceSteps, k - first);
    KeepDenormals keep;
    if (row == 1 && col != 1) {
      for (int64_t s = 0; s < steps; ++s)
        decodeAlong(from, (first + s) * col, 1, rows, piece + s * kPieceRows);
      body(Piece<E>{piece, 1, kPieceRows, first, steps});
    } else {
      for (int64_t i = 0; i < rows; ++i)
        decodeAlong(from, i * row + first * col, col, steps, piece + i * kPieceSteps);
      body(Piece<E>{piece, kPieceSteps, 1, first, steps});
    }
  }
}

/// The operands of a product in their order: A, B, scales of coded ones, C, workspace.
/// Coded operands point into it.
class ProductOperands {
public:
  template <typename P>
  ProductOperands(const P &p, void *const *buffers)
      : a{buffers[0], p.aType}, b{buffers[1], p.bType} {
    buffers += 2;
    takeCodes(a, p.aCodes, tensors[0], buffers);
    takeCodes(b, p.bCodes, tensors[1], buffers);
    c = buffers[0], workspace = buffers[1];
  }
  ProductOperands(const ProductOperands &) = delete;
  ProductOperands &operator=(const ProductOperands &) = delete;

  Operand a, b;
  void *c, *workspace;

private:
  static void takeCodes(Operand &operand, const CodedAs &as, CodedTensor &tensor,
                        void *const *&buffers) {
    if (as.format == 0)
      return;
    tensor = {static_cast<const uint8_t *>(operand.data), *buffers++, nullptr, as};
    if (static_cast<StoredFormat>(as.format) == StoredFormat::nvfp4)
      tensor.whole = static_cast<const float *>(*buffers++);
    operand.coded = &tensor;
  }

  CodedTensor tensors[2];
};

} // namespace sluice::SLUICE_LEVEL
