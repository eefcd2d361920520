// The elementwise operations as vector code of 16 lanes.
#include "ir/graph/Graph.h"
#include "ir/graph/VectorMath.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/TypeUtilities.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace sluice::graph;

namespace {

bool isReal(Value x) { return isa<FloatType>(getElementTypeOrSelf(x)); }
bool isBool(Value x) { return getElementTypeOrSelf(x).isInteger(1); }

VectorType lanesOf(Value x, Type element) {
  return VectorType::get(cast<VectorType>(x.getType()).getShape(), element);
}

Value integerSplat(ImplicitLocOpBuilder &b, Value like, int64_t value) {
  return VectorMath(b).splatInteger(like, value);
}

Value compareIntegers(ImplicitLocOpBuilder &b, arith::CmpIPredicate predicate, Value x,
                      int64_t y) {
  return b.create<arith::CmpIOp>(predicate, x, integerSplat(b, x, y));
}

/// Lanes of 64 bits hold the narrower integers of `type` sign-extended: brings an
/// arithmetic result back to that.
Value wrapLanes(ImplicitLocOpBuilder &b, Value x, Type type) {
  const unsigned lane = getElementTypeOrSelf(x).getIntOrFloatBitWidth();
  const unsigned width = getElementTypeOrSelf(type).getIntOrFloatBitWidth();
  if (isReal(x) || width >= lane)
    return x;
  Value unused = integerSplat(b, x, lane - width);
  return b.create<arith::ShRSIOp>(b.create<arith::ShLIOp>(x, unused), unused);
}

/// One operation for floating point, another for integers.
template <class Real, class Integer>
Value arithmetic(ImplicitLocOpBuilder &b, ValueRange v, Type result) {
  if (isReal(v[0]))
    return b.create<Real>(v[0], v[1]);
  return wrapLanes(b, b.create<Integer>(v[0], v[1]), result);
}

/// A divisor that is safe, and lanes to fix: 1 in place of 0 and -1.
struct SafeDivisor {
  Value divisor, isZero, isMinusOne;
  SafeDivisor(ImplicitLocOpBuilder &b, Value d)
      : isZero(compareIntegers(b, arith::CmpIPredicate::eq, d, 0)),
        isMinusOne(compareIntegers(b, arith::CmpIPredicate::eq, d, -1)) {
    Value either = b.create<arith::OrIOp>(isZero, isMinusOne);
    divisor = b.create<arith::SelectOp>(either, integerSplat(b, d, 1), d);
  }
};

Value divideIntegers(ImplicitLocOpBuilder &b, Value x, Value y, Type result) {
  Value zero = integerSplat(b, x, 0);
  if (isBool(x)) // x / 1 = x, x / 0 = 0
    return b.create<arith::AndIOp>(x, y);
  SafeDivisor safe(b, y);
  Value quotient = b.create<arith::DivSIOp>(x, safe.divisor);
  Value negated = b.create<arith::SubIOp>(zero, x);
  quotient = b.create<arith::SelectOp>(safe.isMinusOne, negated, quotient);
  return wrapLanes(b, b.create<arith::SelectOp>(safe.isZero, zero, quotient), result);
}

Value remainderOfIntegers(ImplicitLocOpBuilder &b, Value x, Value y, bool truncated) {
  Value zero = integerSplat(b, x, 0);
  if (isBool(x))
    return zero;
  SafeDivisor safe(b, y);
  Value r = b.create<arith::RemSIOp>(x, safe.divisor); // 0 for a divisor of 1
  if (truncated)
    return r;
  Value negativeR = compareIntegers(b, arith::CmpIPredicate::slt, r, 0);
  Value negativeY = compareIntegers(b, arith::CmpIPredicate::slt, y, 0);
  Value differ = b.create<arith::XOrIOp>(negativeR, negativeY);
  Value nonZero = compareIntegers(b, arith::CmpIPredicate::ne, r, 0);
  Value moved = b.create<arith::AddIOp>(r, y);
  return b.create<arith::SelectOp>(b.create<arith::AndIOp>(differ, nonZero), moved, r);
}

/// Square and multiply over all bits of the exponent.
Value powerOfIntegers(ImplicitLocOpBuilder &b, Value base, Value exponent, Type result) {
  if (isBool(base)) // 0^1 is the only 0
    return b.create<arith::OrIOp>(
        base, b.create<arith::XOrIOp>(exponent, integerSplat(b, base, -1)));
  Value one = integerSplat(b, base, 1), zero = integerSplat(b, base, 0);
  Value power = one, square = base;
  auto bit = [&](unsigned i) -> Value {
    Value shifted = b.create<arith::ShRUIOp>(exponent, integerSplat(b, base, i));
    return compareIntegers(b, arith::CmpIPredicate::ne,
                           b.create<arith::AndIOp>(shifted, one), 0);
  };
  const unsigned width = getElementTypeOrSelf(base).getIntOrFloatBitWidth();
  for (unsigned i = 0; i + 1 < width; ++i) {
    power =
        b.create<arith::SelectOp>(bit(i), b.create<arith::MulIOp>(power, square), power);
    square = b.create<arith::MulIOp>(square, square);
  }
  // Negative exponents: the truncated reciprocal.
  Value negative = compareIntegers(b, arith::CmpIPredicate::slt, exponent, 0);
  Value sign = b.create<arith::SelectOp>(bit(0), base, one);
  Value isUnit =
      b.create<arith::OrIOp>(compareIntegers(b, arith::CmpIPredicate::eq, base, 1),
                             compareIntegers(b, arith::CmpIPredicate::eq, base, -1));
  Value reciprocal = b.create<arith::SelectOp>(isUnit, sign, zero);
  return wrapLanes(b, b.create<arith::SelectOp>(negative, reciprocal, power), result);
}

} // namespace

// --- one operand

#define SLUICE_REAL_FUNCTION(OP, EXPRESSION)                                             \
  Value OP::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {                          \
    VectorMath m(b);                                                                     \
    Value x = v[0];                                                                      \
    return EXPRESSION;                                                                   \
  }
SLUICE_REAL_FUNCTION(ExpOp, m.exp(x))
SLUICE_REAL_FUNCTION(LogOp, m.log(x))
SLUICE_REAL_FUNCTION(SqrtOp, m.sqrt(x))
SLUICE_REAL_FUNCTION(RsqrtOp, m.rsqrt(x))
SLUICE_REAL_FUNCTION(SinOp, m.sin(x))
SLUICE_REAL_FUNCTION(CosOp, m.cos(x))
SLUICE_REAL_FUNCTION(AtanOp, m.atan(x))
SLUICE_REAL_FUNCTION(TanhOp, m.tanh(x))
SLUICE_REAL_FUNCTION(SigmoidOp, m.sigmoid(x))
SLUICE_REAL_FUNCTION(ErfOp, m.erf(x))
SLUICE_REAL_FUNCTION(FloorOp, m.floor(x))
SLUICE_REAL_FUNCTION(CeilOp, b.create<math::CeilOp>(x))
SLUICE_REAL_FUNCTION(RoundOp, b.create<math::RoundEvenOp>(x))
SLUICE_REAL_FUNCTION(GeluOp, getTanhForm() ? m.geluTanh(x) : m.gelu(x))
SLUICE_REAL_FUNCTION(SiluOp, m.silu(x))
SLUICE_REAL_FUNCTION(SoftplusOp, m.softplus(x))
#undef SLUICE_REAL_FUNCTION

Value NegOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  if (isReal(v[0]))
    return b.create<arith::NegFOp>(v[0]);
  Value zero = integerSplat(b, v[0], 0);
  return wrapLanes(b, b.create<arith::SubIOp>(zero, v[0]), getType());
}

Value AbsOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  if (isReal(v[0]))
    return b.create<math::AbsFOp>(v[0]);
  if (isBool(v[0]))
    return v[0];
  Value negative = compareIntegers(b, arith::CmpIPredicate::slt, v[0], 0);
  Value negated = b.create<arith::SubIOp>(integerSplat(b, v[0], 0), v[0]);
  return wrapLanes(b, b.create<arith::SelectOp>(negative, negated, v[0]), getType());
}

Value SignOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  VectorMath m(b);
  Value x = v[0];
  if (isBool(x))
    return x;
  if (isReal(x)) // zeros and NaN are themselves
    return m.select(m.greater(x, 0), m.splat(x, 1),
                    m.select(m.less(x, 0.0), m.splat(x, -1), x));
  Value positive = compareIntegers(b, arith::CmpIPredicate::sgt, x, 0);
  Value sign = b.create<arith::ShRSIOp>(
      x, integerSplat(b, x, getElementTypeOrSelf(x).getIntOrFloatBitWidth() - 1));
  return b.create<arith::SelectOp>(positive, integerSplat(b, x, 1), sign);
}

Value ReluOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  Value x = v[0];
  if (isBool(x))
    return x;
  if (!isReal(x))
    return b.create<arith::MaxSIOp>(x, integerSplat(b, x, 0));
  Value zero = VectorMath(b).splat(x, 0);
  Value kept = b.create<arith::CmpFOp>(arith::CmpFPredicate::UGT, x, zero); // true on NaN
  return b.create<arith::SelectOp>(kept, x, zero);
}

Value NotOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  return b.create<arith::XOrIOp>(v[0], integerSplat(b, v[0], -1));
}

// --- two operands

Value AddOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  return arithmetic<arith::AddFOp, arith::AddIOp>(b, v, getType());
}
Value SubOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  return arithmetic<arith::SubFOp, arith::SubIOp>(b, v, getType());
}
Value MulOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  return arithmetic<arith::MulFOp, arith::MulIOp>(b, v, getType());
}

Value DivOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  return isReal(v[0]) ? VectorMath(b).div(v[0], v[1])
                      : divideIntegers(b, v[0], v[1], getType());
}

Value PowOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  return isReal(v[0]) ? VectorMath(b).pow(v[0], v[1])
                      : powerOfIntegers(b, v[0], v[1], getType());
}

Value ModOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  return isReal(v[0]) ? VectorMath(b).mod(v[0], v[1], getFmod())
                      : remainderOfIntegers(b, v[0], v[1], getFmod());
}

Value MaxOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  if (isBool(v[0]))
    return b.create<arith::OrIOp>(v[0], v[1]);
  return arithmetic<arith::MaximumFOp, arith::MaxSIOp>(b, v, getType());
}

Value MinOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  if (isBool(v[0]))
    return b.create<arith::AndIOp>(v[0], v[1]);
  return arithmetic<arith::MinimumFOp, arith::MinSIOp>(b, v, getType());
}

Value AndOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  return b.create<arith::AndIOp>(v[0], v[1]);
}
Value OrOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  return b.create<arith::OrIOp>(v[0], v[1]);
}
Value XorOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  return b.create<arith::XOrIOp>(v[0], v[1]);
}

// --- compare, select, cast

Value CompareOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  using Real = arith::CmpFPredicate;
  using Integer = arith::CmpIPredicate;
  struct Row {
    StringRef name;
    Real real;
    Integer integer, boolean;
  };
  static constexpr Row rows[] = {{"eq", Real::OEQ, Integer::eq, Integer::eq},
                                 {"ne", Real::UNE, Integer::ne, Integer::ne},
                                 {"lt", Real::OLT, Integer::slt, Integer::ult},
                                 {"le", Real::OLE, Integer::sle, Integer::ule},
                                 {"gt", Real::OGT, Integer::sgt, Integer::ugt},
                                 {"ge", Real::OGE, Integer::sge, Integer::uge}};
  const Row &row =
      *llvm::find_if(rows, [&](const Row &r) { return r.name == getPredicate(); });
  if (isReal(v[0]))
    return b.create<arith::CmpFOp>(row.real, v[0], v[1]);
  return b.create<arith::CmpIOp>(isBool(v[0]) ? row.boolean : row.integer, v[0], v[1]);
}

Value SelectOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  return b.create<arith::SelectOp>(v[0], v[1], v[2]);
}

/// Lanes that hold the elements of a graph type.
static Type laneType(ImplicitLocOpBuilder &b, Type element) {
  if (isa<FloatType>(element))
    return element.isF64() ? b.getF64Type() : b.getF32Type();
  return element.isInteger(1) || element.isInteger(32) ? element : b.getI64Type();
}

/// Truncates; NaN gives 0, values out of range the nearest integer. The conversion itself
/// never sees those.
static Value realToInteger(ImplicitLocOpBuilder &b, Value x, Type element) {
  VectorMath m(b);
  if (element.isInteger(1))
    return b.create<arith::CmpFOp>(arith::CmpFPredicate::UNE, x, m.splat(x, 0));
  const unsigned width = element.getIntOrFloatBitWidth();
  const double limit = std::ldexp(1.0, width - 1);
  const double largest =
      width > 24 ? limit - std::ldexp(1.0, width - 25) : limit - 1; // exact in f32
  Value isNan = b.create<arith::CmpFOp>(arith::CmpFPredicate::UNO, x, x);
  Value above = b.create<arith::CmpFOp>(arith::CmpFPredicate::OGE, x, m.splat(x, limit));
  Value safe = m.select(isNan, m.splat(x, 0), x);
  safe = m.select(m.greater(safe, largest), m.splat(x, largest), safe);
  safe = m.select(m.less(safe, -limit), m.splat(x, -limit), safe);
  Value y = b.create<arith::FPToSIOp>(lanesOf(x, laneType(b, element)), safe);
  const int64_t most =
      width == 64 ? std::numeric_limits<int64_t>::max() : (1LL << (width - 1)) - 1;
  return b.create<arith::SelectOp>(above, integerSplat(b, y, most), y);
}

static Value integerToInteger(ImplicitLocOpBuilder &b, Value x, Type element) {
  Type lane = laneType(b, element);
  const unsigned from = getElementTypeOrSelf(x).getIntOrFloatBitWidth();
  const unsigned to = lane.getIntOrFloatBitWidth();
  if (to == 1)
    return isBool(x) ? x : compareIntegers(b, arith::CmpIPredicate::ne, x, 0);
  if (from == 1)
    return b.create<arith::ExtUIOp>(lanesOf(x, lane), x);
  if (from < to)
    x = b.create<arith::ExtSIOp>(lanesOf(x, lane), x);
  else if (from > to)
    x = b.create<arith::TruncIOp>(lanesOf(x, lane), x);
  return wrapLanes(b, x, element);
}

/// Brings real lanes to those of the element type, rounded to what it can hold (f64 to 16
/// bits by way of f32).
static Value roundTo(ImplicitLocOpBuilder &b, Value x, Type element) {
  const bool isWide = getElementTypeOrSelf(x).isF64();
  if (element.isF64())
    return isWide ? x : b.create<arith::ExtFOp>(lanesOf(x, element), x).getResult();
  if (isWide)
    x = b.create<arith::TruncFOp>(lanesOf(x, b.getF32Type()), x);
  if (element.isBF16())
    return VectorMath(b).roundToBf16(x);
  if (!element.isF16())
    return x;
  Value narrow = b.create<arith::TruncFOp>(lanesOf(x, element), x);
  return b.create<arith::ExtFOp>(x.getType(), narrow);
}

Value CastOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  Value x = v[0];
  Type element = getElementType();
  if (isa<IntegerType>(element))
    return isReal(x) ? realToInteger(b, x, element) : integerToInteger(b, x, element);
  if (isReal(x))
    return roundTo(b, x, element);
  VectorType reals = lanesOf(x, laneType(b, element));
  if (isBool(x))
    return b.create<arith::UIToFPOp>(reals, x);
  return roundTo(b, b.create<arith::SIToFPOp>(reals, x), element);
}
