// 8-bit floating point (e4m3: 4 bits of exponent, 3 of mantissa) with the range of a
// block expanded to that of the format by a power (Xi et al., COAT, 2024). Powers are
// those of two, so that square roots and products, which are rounded the same everywhere,
// are all there is: reference evaluation and vector code have the same bits.

#include "ir/graph/Graph.h"
#include "ir/graph/Interpreter.h"
#include "ir/graph/VectorMath.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <bit>
#include <cmath>

using namespace mlir;
using namespace sluice::graph;

namespace {

constexpr double largestCode = 448, leastNormalScale = 0x1p-126;
constexpr int powers = 6, plainPower = 2; // |x|^(2^(n - 2)), n = 0 to 5
/// From which smallest ratio on the power n keeps all values: (2^-9 / 448)^(1 / k).
constexpr float leastRatio[powers] = {
    0, 1.9006583e-11f, 4.359654e-06f, 2.0879784e-03f, 4.5694403e-02f, 2.1376249e-01f};

uint32_t bitsOf(float x) { return std::bit_cast<uint32_t>(x); }

float expanded(float u, int power) {
  for (int n = power; n < plainPower; ++n)
    u = std::sqrt(u);
  for (int n = plainPower; n < power; ++n)
    u = u * u;
  return u;
}

float contracted(float u, int power) {
  for (int n = power; n < plainPower; ++n)
    u = u * u;
  for (int n = plainPower; n < power; ++n)
    u = std::sqrt(u);
  return u;
}

/// Of 0 to 448, nearest, ties to even.
int encodeE4M3(float v) {
  if (v < 0x1p-6f)
    return static_cast<int>(bitsOf(v * 512 + 0x1p23f) - bitsOf(0x1p23f));
  uint32_t bits = bitsOf(v);
  return static_cast<int>((bits + 0x7FFFF + (bits >> 20 & 1)) >> 20) - 120 * 8;
}

float decodeE4M3(int code) {
  if (code < 8)
    return static_cast<float>(code) * 0x1p-9f;
  return std::bit_cast<float>(static_cast<uint32_t>(code + 120 * 8) << 20);
}

/// The power that a scale carries.
int powerOf(float scale) { return std::min<int>(bitsOf(scale) & 7, powers - 1); }

VectorType lanesOf(Value x, Type element) {
  return VectorType::get(cast<VectorType>(x.getType()).getShape(), element);
}

/// The same on vectors.
class RangeLanes {
public:
  explicit RangeLanes(ImplicitLocOpBuilder &b) : b(b), m(b) {}

  Value is(arith::CmpIPredicate predicate, Value n, int64_t value) {
    return b.create<arith::CmpIOp>(predicate, n, m.splatInteger(n, value));
  }
  Value powerOf(Value scale) {
    Value bits = m.integerBits(scale);
    return b.create<arith::AndIOp>(bits, m.splatInteger(bits, 7));
  }
  /// Of the powers' results, in order.
  Value choose(Value power, ArrayRef<Value> results) {
    Value y = results.back();
    for (int n = powers - 2; n >= 0; --n)
      y = m.select(is(arith::CmpIPredicate::eq, power, n), results[n], y);
    return y;
  }
  Value expanded(Value u, Value power) {
    Value root = m.sqrt(u), square = m.mul(u, u), fourth = m.mul(square, square);
    return choose(power, {m.sqrt(root), root, u, square, fourth, m.mul(fourth, fourth)});
  }
  Value contracted(Value u, Value power) {
    Value root = m.sqrt(u), square = m.mul(u, u), fourth = m.sqrt(root);
    return choose(power,
                  {m.mul(square, square), square, u, root, fourth, m.sqrt(fourth)});
  }
  Value encode(Value v) {
    Value small = m.integerBits(m.shift(m.scale(v, 512), 0x1p23));
    small = m.addInteger(small, -int64_t(bitsOf(0x1p23f)));
    Value bits = m.integerBits(v);
    auto shiftRight = [&](Value x, int64_t by) {
      return b.create<arith::ShRUIOp>(x, m.splatInteger(x, by)).getResult();
    };
    Value odd = b.create<arith::AndIOp>(shiftRight(bits, 20), m.splatInteger(bits, 1));
    Value normal = b.create<arith::AddIOp>(m.addInteger(bits, 0x7FFFF), odd);
    normal = m.addInteger(shiftRight(normal, 20), -120 * 8);
    return m.select(m.less(v, 0x1p-6), small, normal);
  }
  Value decode(Value code) {
    Value real = b.create<arith::SIToFPOp>(lanesOf(code, b.getF32Type()), code);
    Value shifted = m.addInteger(code, 120 * 8);
    Value bits = b.create<arith::ShLIOp>(shifted, m.splatInteger(shifted, 20));
    return m.select(is(arith::CmpIPredicate::slt, code, 8), m.scale(real, 0x1p-9),
                    m.realBits(bits));
  }

  ImplicitLocOpBuilder &b;
  VectorMath m;
};

} // namespace

LogicalResult RangeScaleOp::evaluate(Evaluation &eval) {
  HostTensor &y = eval.result(0);
  for (size_t i = 0; i < y.reals.size(); ++i) {
    auto largest = static_cast<float>(eval.operand(0).reals[i]);
    float ratio = static_cast<float>(eval.operand(1).reals[i]) / largest;
    int power = getPositive() ? 0 : plainPower;
    for (int n = power + 1; n < powers; ++n)
      power = ratio >= leastRatio[n] ? n : power;
    bool isZero = largest < static_cast<float>(leastNormalScale);
    y.reals[i] = isZero ? 0
                        : std::bit_cast<float>((bitsOf(largest) & ~7u) |
                                               static_cast<uint32_t>(power));
  }
  return success();
}

LogicalResult RangeEncodeOp::evaluate(Evaluation &eval) {
  HostTensor &y = eval.result(0);
  for (size_t i = 0; i < y.integers.size(); ++i) {
    auto x = static_cast<float>(eval.operand(0).reals[i]);
    auto scale = static_cast<float>(eval.operand(1).reals[i]);
    float u = std::fabs(x) / scale;
    float v = expanded(u < 1 ? u : 1, powerOf(scale)) * static_cast<float>(largestCode);
    int code = encodeE4M3(v);
    if (getPositive() && code < 1 && x > 0)
      code = 1;
    code = !getPositive() && x < 0 && code > 0 ? code - 128 : code;
    y.integers[i] = scale >= static_cast<float>(leastNormalScale) ? code : 0;
  }
  return success();
}

LogicalResult RangeDecodeOp::evaluate(Evaluation &eval) {
  HostTensor &y = eval.result(0);
  for (size_t i = 0; i < y.reals.size(); ++i) {
    auto code = static_cast<int>(eval.operand(0).integers[i]);
    auto scale = static_cast<float>(eval.operand(1).reals[i]);
    float w = decodeE4M3(code & 0x7F) / static_cast<float>(largestCode);
    float size = contracted(w, powerOf(scale)) * scale;
    y.reals[i] = code < 0 ? -size : size;
  }
  return success();
}

Value RangeScaleOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  RangeLanes lanes(b);
  VectorMath &m = lanes.m;
  Value ratio = m.div(v[1], v[0]), bits = m.integerBits(v[0]);
  int first = getPositive() ? 0 : plainPower;
  Value power = m.splatInteger(bits, first);
  for (int n = first + 1; n < powers; ++n)
    power = b.create<arith::SelectOp>(
        b.create<arith::CmpFOp>(arith::CmpFPredicate::OGE, ratio,
                                m.splat(ratio, leastRatio[n])),
        m.splatInteger(bits, n), power);
  Value kept = b.create<arith::AndIOp>(bits, m.splatInteger(bits, -8));
  Value scale = m.realBits(b.create<arith::OrIOp>(kept, power));
  return m.select(m.less(v[0], leastNormalScale), m.splat(scale, 0), scale);
}

Value RangeEncodeOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  RangeLanes lanes(b);
  VectorMath &m = lanes.m;
  Value u = m.div(m.abs(v[0]), v[1]);
  u = m.select(m.less(u, 1), u, m.splat(u, 1));
  Value code = lanes.encode(m.scale(lanes.expanded(u, lanes.powerOf(v[1])), largestCode));
  Value none = m.splatInteger(code, 0);
  if (getPositive()) {
    Value isLost = b.create<arith::AndIOp>(lanes.is(arith::CmpIPredicate::slt, code, 1),
                                           m.greater(v[0], 0));
    code = m.select(isLost, m.splatInteger(code, 1), code);
  } else {
    Value isMinus = b.create<arith::AndIOp>(m.less(v[0], 0),
                                            lanes.is(arith::CmpIPredicate::sgt, code, 0));
    code = m.select(isMinus, m.addInteger(code, -128), code);
  }
  Value usable = b.create<arith::CmpFOp>(arith::CmpFPredicate::OGE, v[1],
                                         m.splat(v[1], leastNormalScale));
  code = m.select(usable, code, none);
  return b.create<arith::ExtSIOp>(lanesOf(code, b.getI64Type()), code);
}

Value RangeDecodeOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  RangeLanes lanes(b);
  VectorMath &m = lanes.m;
  Value code = b.create<arith::TruncIOp>(lanesOf(v[0], b.getI32Type()), v[0]);
  Value w = lanes.decode(b.create<arith::AndIOp>(code, m.splatInteger(code, 0x7F)));
  w = m.div(w, m.splat(w, largestCode));
  Value size = m.mul(lanes.contracted(w, lanes.powerOf(v[1])), v[1]);
  return m.select(lanes.is(arith::CmpIPredicate::slt, code, 0), m.neg(size), size);
}
