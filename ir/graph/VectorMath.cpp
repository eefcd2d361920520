// Vector arithmetic and the functions built on exp and log. Coefficients are near-minimax
// (Chebyshev) fits.
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

// --- arithmetic

Value VectorMath::splat(Value like, double value) {
  auto type = cast<VectorType>(like.getType());
  Attribute scalar = b.getFloatAttr(type.getElementType(), value);
  return b.create<arith::ConstantOp>(DenseElementsAttr::get(type, scalar));
}

Value VectorMath::splatInteger(Value like, int64_t value) {
  auto type = cast<VectorType>(like.getType());
  Attribute scalar = b.getIntegerAttr(type.getElementType(), value);
  return b.create<arith::ConstantOp>(DenseElementsAttr::get(type, scalar));
}

Value VectorMath::add(Value x, Value y) { return b.create<arith::AddFOp>(x, y); }
Value VectorMath::sub(Value x, Value y) { return b.create<arith::SubFOp>(x, y); }
Value VectorMath::mul(Value x, Value y) { return b.create<arith::MulFOp>(x, y); }
Value VectorMath::div(Value x, Value y) { return b.create<arith::DivFOp>(x, y); }
Value VectorMath::neg(Value x) { return b.create<arith::NegFOp>(x); }
Value VectorMath::abs(Value x) { return b.create<math::AbsFOp>(x); }
Value VectorMath::fma(Value x, Value y, Value z) {
  return b.create<math::FmaOp>(x, y, z);
}
Value VectorMath::sqrt(Value x) { return b.create<math::SqrtOp>(x); }
Value VectorMath::floor(Value x) { return b.create<math::FloorOp>(x); }

Value VectorMath::select(Value condition, Value x, Value y) {
  return b.create<arith::SelectOp>(condition, x, y);
}

Value VectorMath::less(Value x, Value y) {
  return b.create<arith::CmpFOp>(arith::CmpFPredicate::OLT, x, y);
}

Value VectorMath::equal(Value x, double y) {
  return b.create<arith::CmpFOp>(arith::CmpFPredicate::OEQ, x, splat(x, y));
}

Value VectorMath::polynomial(Value x, ArrayRef<double> coefficients) {
  Value sum = splat(x, coefficients.front());
  for (double coefficient : coefficients.drop_front())
    sum = fma(sum, x, splat(x, coefficient));
  return sum;
}

/// The same lanes under another element type of the same width.
static Value reinterpret(ImplicitLocOpBuilder &b, Value x, Type element) {
  auto type = cast<VectorType>(x.getType());
  return b.create<arith::BitcastOp>(VectorType::get(type.getShape(), element), x);
}

Value VectorMath::integerBits(Value x) {
  return reinterpret(b, x,
                     b.getIntegerType(getElementTypeOrSelf(x).getIntOrFloatBitWidth()));
}

Value VectorMath::realBits(Value x) {
  const bool wide = getElementTypeOrSelf(x).isInteger(64);
  return reinterpret(b, x, wide ? Type(b.getF64Type()) : Type(b.getF32Type()));
}

Value VectorMath::addInteger(Value x, int64_t summand) {
  return b.create<arith::AddIOp>(x, splatInteger(x, summand));
}

Value VectorMath::powerOfTwo(Value n, Value like) {
  const bool wide = getElementTypeOrSelf(like).isF64();
  Value biased = addInteger(n, wide ? 1023 : 127);
  return realBits(b.create<arith::ShLIOp>(biased, splatInteger(n, wide ? 52 : 23)));
}

// --- exp and log

/// Cody and Waite: x = n ln 2 + r, e^x = 2^n e^r. n comes from adding 1.5 * 2^23, which
/// leaves it in the low bits. The factor 2^n is applied in two halves, each normal also
/// where n = 128 or below -126.
Value VectorMath::exp(Value x) {
  constexpr double magic = 0x1.8p23;
  x = select(greater(x, 89), splat(x, 89), x); // NaN passes
  x = select(less(x, -104), splat(x, -104), x);
  Value shifted = fma(x, splat(x, 1.4426950408889634), splat(x, magic));
  Value whole = shift(shifted, -magic);
  Value r = fma(whole, splat(x, -0x1.62e4p-1), x); // 16 bits: whole times it is exact
  r = fma(whole, splat(x, -1.42860682030941723e-6), r);
  Value p = polynomial(r, {1.9891080463998843e-4, 1.3933730715792083e-3,
                           8.333310844647862e-3, 4.166646419740569e-2,
                           0.16666666681704215, 0.500000001353873, 1.0, 1.0});
  Value n = addInteger(integerBits(shifted), -0x4B400000);
  Value half = b.create<arith::ShRSIOp>(n, splatInteger(n, 1));
  Value rest = b.create<arith::SubIOp>(n, half);
  Value y = mul(mul(p, powerOfTwo(half, x)), powerOfTwo(rest, x));
  return select(less(y, 0x1p-126), splat(y, 0), y);
}

/// x = 2^e m with m in [sqrt(1/2), sqrt(2)); log x = e ln 2 + log(1 + f), f = m - 1
/// (Cephes' form).
Value VectorMath::log(Value x) {
  Value denormal = less(x, 0x1p-126);
  Value normal = select(denormal, scale(x, 0x1p25), x);
  // Exponent of m relative to sqrt(1/2): subtract its bits, keep the rest.
  constexpr int64_t rootHalf = 0x3F3504F3;
  Value bits = addInteger(integerBits(normal), -rootHalf);
  Value exponent = b.create<arith::ShRSIOp>(bits, splatInteger(bits, 23));
  Value mantissa = b.create<arith::AndIOp>(bits, splatInteger(bits, 0x007FFFFF));
  Value f = shift(realBits(addInteger(mantissa, rootHalf)), -1);
  Value e = b.create<arith::SIToFPOp>(x.getType(), exponent);
  e = select(denormal, shift(e, -25), e);
  Value p = polynomial(f, {0.06980701958664974, -0.11494546612890219, 0.1168907113745787,
                           -0.12424037717650198, 0.1424855126436147, -0.16667850972851767,
                           0.2000073050385224, -0.2499999662693948, 0.3333333112188015});
  Value square = mul(f, f);
  Value tail = mul(mul(f, square), p);
  tail = fma(e, splat(x, -2.12194440e-4), tail);
  tail = fma(square, splat(x, -0.5), tail);
  Value y = fma(e, splat(x, 0.693359375), add(f, tail));
  // What the bits do not say.
  Value positive = less(splat(x, 0), x);
  y = select(positive, y, select(equal(x, 0), splat(x, -infinity), splat(x, notANumber)));
  return select(equal(x, infinity), x, y);
}

/// log(1 + u) for u in [0, 1]: 2 atanh(s) with s = u / (2 + u), accurate also for small
/// u.
Value VectorMath::log1pUnit(Value u) {
  Value s = div(u, shift(u, 2));
  Value z = mul(s, s);
  Value p = polynomial(z, {0.10393808427873376, 0.08732351232720387, 0.11132355604500663,
                           0.1428515286094183, 0.2000000538497483, 0.33333333325011805});
  Value twice = add(s, s);
  return fma(mul(twice, z), p, twice);
}

Value VectorMath::sigmoid(Value x) { return div(splat(x, 1), shift(exp(neg(x)), 1)); }

Value VectorMath::silu(Value x) { return div(x, shift(exp(neg(x)), 1)); }

Value VectorMath::softplus(Value x) {
  Value tail = log1pUnit(exp(neg(abs(x))));
  Value positive = select(less(x, 0.0), splat(x, 0), x);
  return add(positive, tail);
}

Value VectorMath::rsqrt(Value x) { return div(splat(x, 1), sqrt(x)); }

// --- rational functions (coefficients of Eigen's float approximations)

/// y with +1 or -1 where |x| > limit.
static Value saturate(VectorMath &m, Value x, Value y, double limit) {
  y = m.select(m.greater(x, limit), m.splat(x, 1), y);
  return m.select(m.less(x, -limit), m.splat(x, -1), y);
}

Value VectorMath::tanh(Value x) {
  Value z = mul(x, x);
  Value p =
      polynomial(z, {-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11,
                     5.12229709037114e-08, 1.48572235717979e-05, 6.37261928875436e-04,
                     4.89352455891786e-03});
  Value q = polynomial(z, {1.19825839466702e-06, 1.18534705686654e-04,
                           2.26843463243900e-03, 4.89352518554385e-03});
  Value y = div(mul(x, p), q);
  y = saturate(*this, x, y, 7.99881172180175781);
  return select(less(abs(x), 0.0004), x, y);
}

Value VectorMath::erf(Value x) {
  Value z = mul(x, x);
  Value p = polynomial(z, {0.00022905065861350646, 0.0034082910107109506,
                           0.050955695062380861, 0.18520832239976145, 1.128379143519084});
  Value q = polynomial(z, {-1.1791602954361697e-7, 0.000023547966471313185,
                           0.0010179625278914885, 0.014070470171167667,
                           0.11098505178285362, 0.49746925110067538, 1.0});
  return saturate(*this, x, div(mul(x, p), q), 3.832506856900711);
}

Value VectorMath::gelu(Value x) {
  Value half = scale(x, 0.5);
  return fma(half, erf(scale(x, M_SQRT1_2)), half);
}

Value VectorMath::geluTanh(Value x) {
  const double c = std::sqrt(M_2_PI);
  Value t = mul(x, fma(mul(x, x), splat(x, c * 0.044715), splat(x, c)));
  Value half = scale(x, 0.5);
  return fma(half, tanh(t), half);
}

// --- other

Value VectorMath::roundToBf16(Value x) {
  Value bits = integerBits(x);
  Value odd = b.create<arith::AndIOp>(
      b.create<arith::ShRUIOp>(bits, splatInteger(bits, 16)), splatInteger(bits, 1));
  Value up = b.create<arith::AddIOp>(addInteger(bits, 0x7FFF), odd);
  Value quiet = b.create<arith::OrIOp>(bits, splatInteger(bits, 0x400000));
  Value isNan = b.create<arith::CmpFOp>(arith::CmpFPredicate::UNO, x, x);
  Value rounded = b.create<arith::SelectOp>(isNan, quiet, up);
  return realBits(b.create<arith::AndIOp>(rounded, splatInteger(bits, -0x10000)));
}

} // namespace sluice::graph
