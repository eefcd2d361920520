#include "frontend/onnx/NarrowFloat.h"
#include "frontend/onnx/Elementwise.h"

#include <cmath>
#include <limits>

namespace sluice::frontend {

using llvm::APFloat;

// The numbers of ONNX's types; the installed onnx library may not know their names.
static const NarrowFloat formats[] = {
    {17, 3, -6, 8, 448, false, true, &APFloat::Float8E4M3FN},
    {18, 3, -7, 7, 240, false, true, &APFloat::Float8E4M3FNUZ},
    {19, 2, -14, 15, 57344, true, true, &APFloat::Float8E5M2},
    {20, 2, -15, 15, 57344, false, true, &APFloat::Float8E5M2FNUZ},
    {23, 1, 0, 2, 6, false, false, &APFloat::Float4E2M1FN},
};

const NarrowFloat *narrowFloat(int32_t onnxType) {
  for (const NarrowFloat &format : formats)
    if (format.onnxType == onnxType)
      return &format;
  return nullptr;
}

double decode(const NarrowFloat &format, uint8_t bits) {
  const llvm::fltSemantics &semantics = format.semantics();
  unsigned width = APFloat::getSizeInBits(semantics);
  APFloat value(semantics, llvm::APInt(width, bits & ((1u << width) - 1)));
  bool isLost;
  value.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &isLost);
  return value.convertToDouble();
}

/// The distance of the format's numbers around |x|: a power of two found by halving the
/// range of exponents, which is exact and needs no bits of x.
static Value spacing(Emitter &e, Value x, const NarrowFloat &format) {
  Value rest = e.mul(e.un("abs", x), std::ldexp(1.0, -format.minExponent));
  Value result = e.like(x, std::ldexp(1.0, format.minExponent - format.mantissa));
  int step = 1;
  while (step <= (format.maxExponent - format.minExponent) / 2)
    step *= 2;
  for (; step > 0; step /= 2) {
    double power = std::ldexp(1.0, step);
    Value isAbove = e.cmp(rest, power, "ge");
    rest = e.select(isAbove, e.mul(rest, 1 / power), rest);
    result = e.select(isAbove, e.mul(result, power), result);
  }
  return result;
}

Value roundTo(Emitter &e, Value x, const NarrowFloat &format, bool saturate) {
  x = e.cast(x, e.f32());
  if (!x)
    return {};
  Value unit = spacing(e, x, format);
  Value steps = e.op("round", {e.div(x, unit)}, {e.flag("straight_through")});
  Value y = e.mul(steps, unit);
  if (!format.hasNaN)
    y = e.select(e.cmp(x, x, "ne"), e.like(x, 0), y);
  if (saturate || !format.hasNaN)
    return clamp(e, y, -format.largest, format.largest);
  double infinity = std::numeric_limits<double>::infinity();
  double over = format.hasInfinity ? infinity : std::nan("");
  y = e.select(e.cmp(y, format.largest, "gt"), e.like(y, over), y);
  return e.select(e.cmp(y, -format.largest, "lt"), e.like(y, -over), y);
}

} // namespace sluice::frontend
