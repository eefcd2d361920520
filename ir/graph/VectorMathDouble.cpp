// The functions that compute in double inside: angles are reduced and powers taken with
// bits to spare, and the result is rounded once.
#include "ir/graph/VectorMath.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/TypeUtilities.h"

#include <cmath>
#include <limits>

using namespace mlir;

namespace sluice::graph {

static constexpr double infinity = std::numeric_limits<double>::infinity();
static constexpr double notANumber = std::numeric_limits<double>::quiet_NaN();
/// Adding it leaves the integer nearest to a double in its low bits.
static constexpr double magic = 0x1.8p52;

static VectorType withElement(Value x, Type element) {
  return VectorType::get(cast<VectorType>(x.getType()).getShape(), element);
}

Value VectorMath::toDouble(Value x) {
  return b.create<arith::ExtFOp>(withElement(x, b.getF64Type()), x);
}

Value VectorMath::toSingle(Value x) {
  return b.create<arith::TruncFOp>(withElement(x, b.getF32Type()), x);
}

// --- sine and cosine

/// x = q pi/2 + r. q times the leading 53 bits of pi/2 is subtracted by one fma, the next
/// 53 bits by another, so r is good to about 2^-53 as long as q < 2^51.
VectorMath::Angle VectorMath::reduceAngle(Value x) {
  Value wide = toDouble(x);
  Value shifted = fma(wide, splat(wide, M_2_PI), splat(wide, magic));
  Value q = shift(shifted, -magic);
  Value r = fma(q, splat(wide, -0x1.921fb54442d18p0), wide);
  r = fma(q, splat(wide, -0x1.1a62633145c07p-54), r);
  Value quadrant =
      b.create<arith::TruncIOp>(withElement(x, b.getI32Type()), integerBits(shifted));
  return {toSingle(r), quadrant, less(abs(x), 0x1p51)};
}

Value VectorMath::sinOrCos(const Angle &angle, int64_t quadrantShift) {
  Value x = angle.remainder, z = mul(x, x);
  Value s = polynomial(z, {2.7249314054698804e-06, -0.00019840082012765537,
                           0.008333331865959415, -0.16666666663832763});
  Value sine = fma(mul(x, z), s, x);
  Value c = polynomial(z, {-2.7300448619488353e-07, 2.4800596435621998e-05,
                           -0.0013888887664713619, 0.0416666666643024, -0.5});
  Value cosine = fma(z, c, splat(x, 1));
  Value quadrant = addInteger(angle.quadrant, quadrantShift);
  auto bitSet = [&](int64_t mask) -> Value {
    Value bit = b.create<arith::AndIOp>(quadrant, splatInteger(quadrant, mask));
    return b.create<arith::CmpIOp>(arith::CmpIPredicate::ne, bit,
                                   splatInteger(quadrant, 0));
  };
  Value y = select(bitSet(1), cosine, sine);
  y = select(bitSet(2), neg(y), y);
  return select(angle.valid, y, splat(y, notANumber));
}

Value VectorMath::sin(Value x) { return sinOrCos(reduceAngle(x), 0); }
Value VectorMath::cos(Value x) { return sinOrCos(reduceAngle(x), 1); }

/// |x| is brought into [0, tan(pi/8)] by atan x = pi/4 + atan((x - 1) / (x + 1)) = pi/2 -
/// atan(1 / x).
Value VectorMath::atan(Value x) {
  Value a = abs(x);
  Value large = greater(a, 2.414213562373095), middle = greater(a, 0.4142135623730950);
  Value one = splat(x, 1);
  Value numerator = select(large, splat(x, -1), select(middle, shift(a, -1), a));
  Value denominator = select(large, a, select(middle, shift(a, 1), one));
  Value t = div(numerator, denominator), z = mul(t, t);
  Value p = polynomial(z, {-0.06449835224591496, 0.1074309966767457, -0.14263897112598675,
                           0.1999953879477192, -0.3333333175381697});
  Value base =
      select(large, splat(x, M_PI_2), select(middle, splat(x, M_PI_4), splat(x, 0)));
  Value y = add(base, fma(mul(t, z), p, t));
  return b.create<math::CopySignOp>(y, x);
}

// --- powers

/// log2 of a positive finite double: exponent plus 2 atanh(s) / ln 2 with s = (m - 1) /
/// (m + 1), to about 1e-14.
Value VectorMath::log2Double(Value x) {
  constexpr int64_t rootHalf = 0x3FE6A09E667F3BCD;
  Value bits = addInteger(integerBits(x), -rootHalf);
  Value exponent = b.create<arith::ShRSIOp>(bits, splatInteger(bits, 52));
  Value fraction = b.create<arith::AndIOp>(bits, splatInteger(bits, 0x000FFFFFFFFFFFFF));
  Value m = realBits(addInteger(fraction, rootHalf));
  Value s = div(shift(m, -1), shift(m, 1)), z = mul(s, s);
  Value p =
      polynomial(z, {0.08311558292141735, 0.09070053878305173, 0.11111432124687459,
                     0.14285712060110414, 0.2000000000563177, 0.3333333333333103, 1.0});
  // The exponent as a double, by its bits below those of the magic number.
  Value e = shift(realBits(addInteger(exponent, 0x4338000000000000)), -magic);
  return fma(mul(s, p), splat(x, 2.8853900817779268), e);
}

/// 2^x, for results in the range of floats and a little beyond.
Value VectorMath::exp2Double(Value x) {
  x = select(greater(x, 200), splat(x, 200), x);
  x = select(less(x, -200), splat(x, -200), x);
  Value shifted = shift(x, magic);
  Value f = sub(x, shift(shifted, -magic));
  Value p = polynomial(
      f, {1.0205905413765595e-07, 1.325964524488711e-06, 1.5252672924850737e-05,
          0.0001540343375125101, 0.0013333558200794592, 0.009618129193934313,
          0.05550410866465167, 0.2402265069564034, 0.6931471805599462, 1.0});
  Value n = addInteger(integerBits(shifted), -0x4338000000000000);
  return mul(p, powerOfTwo(n, x));
}

Value VectorMath::pow(Value x, Value y) {
  Value a = abs(x), wideA = toDouble(a);
  Value logarithm = log2Double(wideA);
  logarithm = select(equal(wideA, 0), splat(wideA, -infinity), logarithm);
  Value finite = less(wideA, infinity); // false on NaN too
  logarithm = select(finite, logarithm, wideA);
  Value result = toSingle(exp2Double(mul(toDouble(y), logarithm)));

  auto sameAs = [&](Value p, Value q) -> Value {
    return b.create<arith::CmpFOp>(arith::CmpFPredicate::OEQ, p, q);
  };
  Value one = splat(x, 1);
  Value whole = sameAs(floor(y), y);
  Value half = scale(y, 0.5);
  Value halfWhole = sameAs(floor(half), half);
  Value truth = b.create<arith::ConstantOp>(
      DenseElementsAttr::get(cast<VectorType>(whole.getType()), true));
  Value odd = b.create<arith::AndIOp>(whole, b.create<arith::XOrIOp>(halfWhole, truth));
  Value bits = integerBits(x);
  Value signBit =
      b.create<arith::CmpIOp>(arith::CmpIPredicate::slt, bits, splatInteger(bits, 0));
  result = select(b.create<arith::AndIOp>(signBit, odd), neg(result), result);
  // A negative finite base needs a whole exponent.
  Value negative = b.create<arith::AndIOp>(less(x, 0.0), less(a, infinity));
  Value undefined =
      b.create<arith::AndIOp>(negative, b.create<arith::XOrIOp>(whole, truth));
  result = select(undefined, splat(x, notANumber), result);
  // 1^y = x^0 = 1 even for NaN, and (-1)^(+-inf) = 1.
  Value unit = b.create<arith::AndIOp>(equal(a, 1), equal(abs(y), infinity));
  Value isOne = b.create<arith::OrIOp>(equal(x, 1), equal(y, 0));
  return select(b.create<arith::OrIOp>(isOne, unit), one, result);
}

/// r = x - trunc(x / y) y in double: the quotient is off by at most one, which the sign
/// or size of r shows.
Value VectorMath::mod(Value x, Value y, bool truncated) {
  Value a = abs(toDouble(x)), d = abs(toDouble(y));
  Value q = floor(div(a, d));
  Value r = fma(neg(q), d, a);
  r = select(less(r, 0.0), add(r, d), r);
  Value tooLarge = b.create<arith::CmpFOp>(arith::CmpFPredicate::OGE, r, d);
  r = select(tooLarge, sub(r, d), r);
  // An infinite divisor leaves a finite x.
  Value whole = b.create<arith::AndIOp>(equal(d, infinity), less(a, infinity));
  r = select(whole, a, r);
  Value result = b.create<math::CopySignOp>(toSingle(r), x);
  if (truncated)
    return result;
  // A remainder of the other sign moves by one divisor.
  Value zero = splat(x, 0);
  Value wrongSign = b.create<arith::XOrIOp>(less(result, zero), less(y, zero));
  Value nonZero = b.create<arith::CmpFOp>(arith::CmpFPredicate::ONE, result, zero);
  Value moved = toSingle(add(toDouble(result), toDouble(y)));
  return select(b.create<arith::AndIOp>(wrongSign, nonZero), moved, result);
}

} // namespace sluice::graph
