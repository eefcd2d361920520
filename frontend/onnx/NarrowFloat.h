#pragma once
// Floating-point formats of eight and fewer bits. Their values are carried as f32.

#include "frontend/onnx/Emitter.h"

namespace sluice::frontend {

/// Signed, with `mantissa` bits behind the leading one; below 2^minExponent numbers are
/// evenly spaced.
struct NarrowFloat {
  int32_t onnxType;
  int mantissa, minExponent, maxExponent;
  double largest;
  bool hasInfinity; // what overflows is infinite, else not a number
  bool hasNaN;      // else it is 0, and overflow saturates always
  const llvm::fltSemantics &(*semantics)();
};

/// Null for other types.
const NarrowFloat *narrowFloat(int32_t onnxType);

/// The number that bits of the format stand for.
double decode(const NarrowFloat &format, uint8_t bits);

/// x as the nearest f32 that the format has, on ties the one with an even mantissa. What
/// is too large becomes the largest with `saturate`, else overflows. The gradient is that
/// of the identity, and of a clamp where it saturates.
Value roundTo(Emitter &e, Value x, const NarrowFloat &format, bool saturate);

} // namespace sluice::frontend
