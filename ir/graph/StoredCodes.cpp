// The elementwise operations of stored formats: codes of a few bits, powers of two, and
// two codes of 4 bits in a byte.
#include "ir/graph/Graph.h"
#include "ir/graph/Interpreter.h"
#include "ir/graph/Shapes.h"
#include "ir/graph/StoredLanes.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace sluice;
using namespace sluice::graph;

namespace {
using Place = std::optional<Location>;

/// f16 as a format of codes: what stochastic rounding to it needs.
constexpr Minifloat halfFormat = {10, 15, 16, 65504, 0};

const Minifloat *formatOf(StringRef name) {
  if (name == "e4m3")
    return &minifloat::e4m3;
  if (name == "e5m2")
    return &minifloat::e5m2;
  return name == "e2m1" ? &minifloat::e2m1 : nullptr;
}

LogicalResult checkFormat(StringRef op, Place loc, StringRef format) {
  if (formatOf(format))
    return success();
  return emitOptionalError(loc, "format of '", op, "' is '", format,
                           "', expected e4m3, e5m2 or e2m1");
}

/// Operands have one shape and the element types given.
LogicalResult infer(StringRef op, Place loc, ValueRange operands, ArrayRef<Type> expected,
                    Type result, SmallVectorImpl<Type> &types) {
  RankedTensorType first = operandType(op, loc, operands, 0);
  if (!first)
    return failure();
  for (unsigned i = 0; i < operands.size(); ++i) {
    RankedTensorType type = operandType(op, loc, operands, i);
    if (!type)
      return failure();
    if (type != first.clone(expected[i]))
      return emitOptionalError(loc, "operand ", i, " of '", op, "' has type ", type,
                               ", expected ", first.clone(expected[i]));
  }
  types.push_back(first.clone(result));
  return success();
}

} // namespace

#define SLUICE_STORED(OP, FLOPS, FORMAT, RESULT, ...)                                    \
  LogicalResult OP::inferReturnTypes(MLIRContext *context, Place loc, Adaptor adaptor,   \
                                     SmallVectorImpl<Type> &types) {                     \
    Builder b(context);                                                                  \
    if (failed(checkFormat(getOperationName(), loc, FORMAT)))                            \
      return failure();                                                                  \
    return infer(getOperationName(), loc, adaptor.getOperands(), {__VA_ARGS__}, RESULT,  \
                 types);                                                                 \
  }                                                                                      \
  bool OP::isExpensive() { return FLOPS >= 16; }                                         \
  double OP::flops() { return FLOPS * double(tensorType(getY()).getNumElements()); }     \
  LogicalResult OP::buildGradient(OpBuilder &, GradientContext &) {                      \
    return emitOpError("has no gradient: it stores state");                              \
  }
SLUICE_STORED(MiniEncodeOp, 16, adaptor.getFormat(), b.getI8Type(), b.getF32Type(),
              b.getF32Type(), b.getF32Type())
SLUICE_STORED(MiniDecodeOp, 8, adaptor.getFormat(), b.getF32Type(), b.getI8Type(),
              b.getF32Type())
SLUICE_STORED(PowerCodeOp, 4, adaptor.getFormat(), b.getI8Type(), b.getF32Type())
SLUICE_STORED(PowerValueOp, 2, "e4m3", b.getF32Type(), b.getI8Type())
SLUICE_STORED(PackNibblesOp, 3, "e2m1", b.getI8Type(), b.getI8Type(), b.getI8Type())
SLUICE_STORED(UnpackNibbleOp, 2, "e2m1", b.getI8Type(), b.getI8Type())
SLUICE_STORED(RoundHalfOp, 16, "e4m3", b.getF16Type(), b.getF32Type(), b.getF32Type())
#undef SLUICE_STORED

// --- evaluation

static float realAt(const HostTensor &tensor, size_t i) {
  return static_cast<float>(tensor.reals[i]);
}
static uint32_t codeAt(const HostTensor &tensor, size_t i) {
  return static_cast<uint8_t>(tensor.integers[i]);
}
static int64_t byteOf(uint32_t code) { return static_cast<int8_t>(code); }

LogicalResult MiniEncodeOp::evaluate(Evaluation &eval) {
  HostTensor &y = eval.result(0);
  for (size_t i = 0; i < y.integers.size(); ++i) {
    minifloat::Rounding rounding;
    if (getNoise())
      rounding = {true, realAt(eval.operand(2), i)};
    float x = minifloat::scaled(realAt(eval.operand(0), i), realAt(eval.operand(1), i));
    y.integers[i] = byteOf(minifloat::encode(*formatOf(getFormat()), x, rounding));
  }
  return success();
}

LogicalResult MiniDecodeOp::evaluate(Evaluation &eval) {
  HostTensor &y = eval.result(0);
  for (size_t i = 0; i < y.reals.size(); ++i)
    y.reals[i] = minifloat::decode(*formatOf(getFormat()), codeAt(eval.operand(0), i)) *
                 realAt(eval.operand(1), i);
  return success();
}

LogicalResult PowerCodeOp::evaluate(Evaluation &eval) {
  HostTensor &y = eval.result(0);
  for (size_t i = 0; i < y.integers.size(); ++i)
    y.integers[i] =
        byteOf(minifloat::powerCode(*formatOf(getFormat()), realAt(eval.operand(0), i)));
  return success();
}

LogicalResult PowerValueOp::evaluate(Evaluation &eval) {
  HostTensor &y = eval.result(0);
  for (size_t i = 0; i < y.reals.size(); ++i)
    y.reals[i] = minifloat::powerOf(codeAt(eval.operand(0), i));
  return success();
}

LogicalResult PackNibblesOp::evaluate(Evaluation &eval) {
  HostTensor &y = eval.result(0);
  for (size_t i = 0; i < y.integers.size(); ++i)
    y.integers[i] = byteOf((codeAt(eval.operand(0), i) & 15) |
                           (codeAt(eval.operand(1), i) & 15) << 4);
  return success();
}

LogicalResult UnpackNibbleOp::evaluate(Evaluation &eval) {
  HostTensor &y = eval.result(0);
  for (size_t i = 0; i < y.integers.size(); ++i)
    y.integers[i] = codeAt(eval.operand(0), i) >> (getHigh() ? 4 : 0) & 15;
  return success();
}

LogicalResult RoundHalfOp::evaluate(Evaluation &eval) {
  HostTensor &y = eval.result(0);
  for (size_t i = 0; i < y.reals.size(); ++i) {
    float x = realAt(eval.operand(0), i);
    uint32_t code = minifloat::encode(halfFormat, x, {true, realAt(eval.operand(1), i)});
    y.reals[i] = std::isfinite(x) ? minifloat::decode(halfFormat, code) : x;
  }
  return success();
}

// --- vector code

namespace {

VectorType lanesOf(Value x, Type element) {
  return VectorType::get(cast<VectorType>(x.getType()).getShape(), element);
}

Value narrow(ImplicitLocOpBuilder &b, Value x) {
  return b.create<arith::TruncIOp>(lanesOf(x, b.getI32Type()), x);
}

/// Codes as i8 has them: from 128 on they are below 0.
Value widenByte(ImplicitLocOpBuilder &b, Value code) {
  VectorMath m(b);
  Value by = m.splatInteger(code, 24);
  Value byte = b.create<arith::ShRSIOp>(b.create<arith::ShLIOp>(code, by), by);
  return b.create<arith::ExtSIOp>(lanesOf(code, b.getI64Type()), byte);
}

} // namespace

Value MiniEncodeOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  VectorMath m(b);
  StoredLanes lanes(b, *formatOf(getFormat()));
  Value inverse = m.div(m.splat(v[1], 1), v[1]);
  inverse = m.select(m.less(v[1], 0x1p-126), m.splat(v[1], 0), inverse);
  Value x = m.mul(v[0], inverse);
  return widenByte(b, lanes.encode(x, v[0], v.size() > 2 ? v[2] : Value()));
}

Value MiniDecodeOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  StoredLanes lanes(b, *formatOf(getFormat()));
  return VectorMath(b).mul(lanes.decode(narrow(b, v[0])), v[1]);
}

Value PowerCodeOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  const Minifloat &format = *formatOf(getFormat());
  VectorMath m(b);
  StoredLanes lanes(b, format);
  Value bits = lanes.bitAnd(m.integerBits(v[0]), 0x7FFFFFFF);
  uint32_t largest = std::bit_cast<uint32_t>(format.largest);
  int64_t carry = 0x7FFFFF - (largest & 0x7FFFFF), exponent = (largest >> 23) - 127;
  Value power = m.addInteger(lanes.shiftRight(m.addInteger(bits, carry), 23), -exponent);
  power = m.select(lanes.is(arith::CmpIPredicate::slt, power, 1),
                   m.splatInteger(power, 1), power);
  Value none = lanes.is(arith::CmpIPredicate::sge, bits, 0x7F800000);
  return widenByte(b, m.select(none, m.splatInteger(power, minifloat::noPower), power));
}

Value PowerValueOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  VectorMath m(b);
  StoredLanes lanes(b, minifloat::e4m3);
  Value code = lanes.bitAnd(narrow(b, v[0]), 0xFF);
  Value y = m.realBits(lanes.shiftLeft(code, 23));
  return m.select(lanes.is(arith::CmpIPredicate::eq, code, minifloat::noPower),
                  m.splat(y, std::numeric_limits<double>::quiet_NaN()), y);
}

Value PackNibblesOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  StoredLanes lanes(b, minifloat::e2m1);
  Value low = lanes.bitAnd(narrow(b, v[0]), 15), high = lanes.bitAnd(narrow(b, v[1]), 15);
  return widenByte(b, lanes.bitOr(low, lanes.shiftLeft(high, 4)));
}

Value UnpackNibbleOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  StoredLanes lanes(b, minifloat::e2m1);
  Value byte = narrow(b, v[0]);
  return widenByte(b, lanes.bitAnd(getHigh() ? lanes.shiftRight(byte, 4) : byte, 15));
}

Value RoundHalfOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  VectorMath m(b);
  StoredLanes lanes(b, halfFormat);
  Value isFinite = m.less(m.abs(v[0]), std::numeric_limits<double>::infinity());
  return m.select(isFinite, lanes.decode(lanes.encode(v[0], v[0], v[1])), v[0]);
}
