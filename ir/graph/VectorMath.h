#pragma once
// The functions of one real variable as vector code: polynomials in explicit fused
// multiply-adds, so that the bits depend on the argument alone (never on the instruction
// set, nor on the host's libm through constant folding).

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

#include <cstdint>

namespace sluice::graph {

/// Arithmetic on vectors of f32 (or of f64, where a function computes in double inside).
/// Errors are measured over all exponents against double precision and held by
/// tests/ir/VectorMathTest.
class VectorMath {
public:
  using Value = mlir::Value;
  explicit VectorMath(mlir::ImplicitLocOpBuilder &builder) : b(builder) {}

  // --- vector arithmetic, element by element

  /// A constant vector with the lanes and element type of `like`.
  Value splat(Value like, double value);
  Value splatInteger(Value like, int64_t value);
  Value add(Value x, Value y);
  Value sub(Value x, Value y);
  Value mul(Value x, Value y);
  Value div(Value x, Value y);
  Value neg(Value x);
  Value abs(Value x);
  Value fma(Value x, Value y, Value z);
  Value sqrt(Value x);
  Value floor(Value x);
  Value select(Value condition, Value x, Value y);
  Value less(Value x, Value y); // ordered: false on NaN
  Value less(Value x, double y) { return less(x, splat(x, y)); }
  Value greater(Value x, double y) { return less(splat(x, y), x); }
  Value equal(Value x, double y);
  Value scale(Value x, double factor) { return mul(x, splat(x, factor)); }
  Value shift(Value x, double summand) { return add(x, splat(x, summand)); }

  // --- functions of f32

  Value exp(Value x);      // <= 0.9 ulp; results below 2^-126 are 0
  Value log(Value x);      // <= 0.9 ulp, denormals too
  Value tanh(Value x);     // <= 4.6 ulp
  Value sigmoid(Value x);  // <= 2.5 ulp
  Value erf(Value x);      // <= 7 ulp (4e-7)
  Value sin(Value x);      // <= 1.5 ulp up to |x| = 2^51, NaN beyond
  Value cos(Value x);      // as sin
  Value atan(Value x);     // <= 3 ulp
  Value rsqrt(Value x);    // 1 / sqrt(x), both rounded
  Value softplus(Value x); // <= 3 ulp
  Value gelu(Value x);     // absolute error <= 3e-7 max(1, |x|)
  Value geluTanh(Value x);
  Value silu(Value x);
  Value pow(Value x, Value y); // <= 1 ulp; special cases of C
  /// Exact for |x / y| < 2^53; the result has the sign of x (`truncated`) or of y.
  Value mod(Value x, Value y, bool truncated);
  /// Rounds to bfloat16 (nearest, ties to even) and stays f32; NaN stays NaN.
  Value roundToBf16(Value x);

  // --- bits

  Value integerBits(Value x);
  Value realBits(Value x);
  Value addInteger(Value x, int64_t summand);

private:
  /// Coefficients from the highest power down.
  Value polynomial(Value x, llvm::ArrayRef<double> coefficients);
  /// 2^n for integers n in the normal range, as the element type of `like`.
  Value powerOfTwo(Value n, Value like);
  Value log1pUnit(Value u);
  Value toDouble(Value x);
  Value toSingle(Value x);
  Value log2Double(Value x);
  Value exp2Double(Value x);
  struct Angle {
    Value remainder; // f32 in [-pi/4, pi/4]
    Value quadrant;  // i32 lanes
    Value valid;
  };
  Angle reduceAngle(Value x);
  Value sinOrCos(const Angle &angle, int64_t quadrantShift);

  mlir::ImplicitLocOpBuilder &b;
};

} // namespace sluice::graph
