#include "ir/graph/StoredLanes.h"

#include <limits>

using namespace mlir;

namespace sluice::graph {

static VectorType lanesOf(Value x, Type element) {
  return VectorType::get(cast<VectorType>(x.getType()).getShape(), element);
}

Value StoredLanes::is(arith::CmpIPredicate predicate, Value n, int64_t value) {
  return b.create<arith::CmpIOp>(predicate, n, m.splatInteger(n, value));
}
Value StoredLanes::shiftRight(Value n, int64_t by) {
  return b.create<arith::ShRUIOp>(n, m.splatInteger(n, by));
}
Value StoredLanes::shiftLeft(Value n, int64_t by) {
  return b.create<arith::ShLIOp>(n, m.splatInteger(n, by));
}
Value StoredLanes::bitAnd(Value n, int64_t mask) {
  return b.create<arith::AndIOp>(n, m.splatInteger(n, mask));
}
Value StoredLanes::bitOr(Value a, Value c) { return b.create<arith::OrIOp>(a, c); }
Value StoredLanes::isNan(Value x) {
  return b.create<arith::CmpFOp>(arith::CmpFPredicate::UNO, x, x);
}
Value StoredLanes::toInteger(Value x) {
  return b.create<arith::FPToSIOp>(lanesOf(x, b.getI32Type()), x);
}
Value StoredLanes::toReal(Value n) {
  return b.create<arith::SIToFPOp>(lanesOf(n, b.getF32Type()), n);
}

/// Of magnitudes below the least normal number, in units of the step there; of others
/// anything.
Value StoredLanes::small(Value a, Value noise) {
  a = m.select(m.less(a, format.leastNormal()), a, m.splat(a, 0));
  Value units = m.scale(a, 1 / format.unit());
  if (!noise)
    return m.addInteger(m.integerBits(m.shift(units, 0x1p23)),
                        -int64_t(std::bit_cast<uint32_t>(0x1p23f)));
  Value below = toInteger(units);
  Value place = m.sub(units, toReal(below));
  Value isUp = b.create<arith::CmpFOp>(arith::CmpFPredicate::OGE, m.add(place, noise),
                                       m.splat(a, 1));
  return m.select(isUp, m.addInteger(below, 1), below);
}

Value StoredLanes::normal(Value a, Value noise) {
  int64_t dropped = format.dropped();
  Value word = m.integerBits(a), added;
  if (noise)
    added = toInteger(m.scale(noise, static_cast<double>(int64_t{1} << dropped)));
  else
    added = m.addInteger(bitAnd(shiftRight(word, dropped), 1),
                         (int64_t{1} << (dropped - 1)) - 1);
  Value moved = shiftRight(b.create<arith::AddIOp>(word, added), dropped);
  return m.addInteger(moved, -(int64_t{127 - format.bias} << format.mantissaBits));
}

Value StoredLanes::encode(Value x, Value signs, Value noise) {
  Value a = m.abs(x);
  a = m.select(m.less(a, format.largest), a, m.splat(a, format.largest));
  Value code =
      m.select(m.less(a, format.leastNormal()), small(a, noise), normal(a, noise));
  Value sign = shiftLeft(shiftRight(m.integerBits(signs), 31), format.bits - 1);
  return m.select(isNan(x), m.splatInteger(code, format.nan), bitOr(code, sign));
}

Value StoredLanes::decode(Value code) {
  int64_t signBit = format.signBit();
  Value size = bitAnd(code, signBit - 1);
  Value subnormal = m.scale(toReal(size), format.unit());
  Value shifted = m.addInteger(size, int64_t{127 - format.bias} << format.mantissaBits);
  Value y = m.realBits(shiftLeft(shifted, format.dropped()));
  y = m.select(is(arith::CmpIPredicate::slt, size, int64_t{1} << format.mantissaBits),
               subnormal, y);
  Value sign = shiftLeft(bitAnd(code, signBit), 32 - format.bits);
  y = m.realBits(b.create<arith::XOrIOp>(m.integerBits(y), sign));
  if (!format.nan)
    return y;
  Value isNone = is(arith::CmpIPredicate::eq, size, format.nan);
  return m.select(isNone, m.splat(y, std::numeric_limits<double>::quiet_NaN()), y);
}

} // namespace sluice::graph
