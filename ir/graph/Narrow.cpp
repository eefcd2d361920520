// State in fewer bytes: an f32 as two halves, stochastic rounding, and the 8-bit dynamic
// map, each as inference, reference evaluation and vector code.
#include "ir/graph/Graph.h"
#include "ir/graph/Interpreter.h"
#include "ir/graph/Shapes.h"
#include "ir/graph/VectorMath.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <bit>
#include <cmath>

using namespace mlir;
using namespace sluice::graph;

#define GET_OP_CLASSES
#include "ir/graph/Narrow.cpp.inc"

// --- inference

namespace {
using Place = std::optional<Location>;

/// Appends the type of operand 0 with another element type; all operands have its shape,
/// and the element types given.
LogicalResult convert(StringRef op, Place loc, ValueRange operands,
                      ArrayRef<Type> expected, Type result,
                      SmallVectorImpl<Type> &types) {
  RankedTensorType first = operandType(op, loc, operands, 0);
  if (!first)
    return failure();
  for (auto [i, element] : llvm::enumerate(expected)) {
    RankedTensorType type = operandType(op, loc, operands, i);
    if (!type)
      return failure();
    if (type != first.clone(element))
      return emitOptionalError(loc, "operand ", i, " of '", op, "' has type ", type,
                               ", expected ", first.clone(element));
  }
  types.push_back(first.clone(result));
  return success();
}

double elementsOf(Value value) { return tensorType(value).getNumElements(); }
} // namespace

// Element types of the operands and the result, and operations per element.
#define SLUICE_NARROW(OP, FLOPS, RESULT, ...)                                            \
  LogicalResult OP::inferReturnTypes(MLIRContext *context, Place loc, Adaptor adaptor,   \
                                     SmallVectorImpl<Type> &types) {                     \
    Builder b(context);                                                                  \
    return convert(getOperationName(), loc, adaptor.getOperands(), {__VA_ARGS__},        \
                   RESULT, types);                                                       \
  }                                                                                      \
  bool OP::isExpensive() { return FLOPS >= 8; }                                          \
  double OP::flops() { return FLOPS * elementsOf(getY()); }                              \
  LogicalResult OP::buildGradient(OpBuilder &, GradientContext &) {                      \
    return emitOpError("has no gradient: it stores state");                              \
  }
SLUICE_NARROW(SplitHighOp, 2, b.getBF16Type(), b.getF32Type())
SLUICE_NARROW(SplitLowOp, 3, b.getI16Type(), b.getF32Type())
SLUICE_NARROW(JoinSplitOp, 2, b.getF32Type(), b.getBF16Type(), b.getI16Type())
SLUICE_NARROW(RoundStochasticOp, 5, b.getBF16Type(), b.getF32Type(), b.getF32Type())
SLUICE_NARROW(DynamicEncodeOp, 40, b.getI8Type(), b.getF32Type())
SLUICE_NARROW(DynamicDecodeOp, 20, b.getF32Type(), b.getI8Type())
SLUICE_NARROW(RangeScaleOp, 20, b.getF32Type(), b.getF32Type(), b.getF32Type())
SLUICE_NARROW(RangeEncodeOp, 40, b.getI8Type(), b.getF32Type(), b.getF32Type())
SLUICE_NARROW(RangeDecodeOp, 20, b.getF32Type(), b.getI8Type(), b.getF32Type())
#undef SLUICE_NARROW

// --- evaluation

namespace {

uint32_t bitsOf(double x) { return std::bit_cast<uint32_t>(static_cast<float>(x)); }
double realOf(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t highOf(uint32_t bits) { return (bits + 0x8000) & 0xFFFF0000; }

/// The dynamic map: `positive` has one more bit for the part within a decade.
struct DynamicMap {
  static constexpr int decades = 7;
  // First value of each decade's range, in f32 as the generated code has them.
  static constexpr float floors[decades] = {1e-7f, 1e-6f, 1e-5f, 1e-4f,
                                            1e-3f, 1e-2f, 1e-1f};

  bool positive;

  int parts(int decade) const { return 1 << (decade + positive); }
  /// Width of a part, rounded to f32 once.
  float width(int decade) const {
    return static_cast<float>(0.9 * std::pow(10.0, decade - 6) / parts(decade));
  }
  /// Value of code `n` >= 0 in order of size; the last is 1.
  float value(int n) const {
    if (n == 0)
      return 0;
    if (n > last())
      return 1;
    int m = positive ? n + 1 : n;
    int decade = std::bit_width(static_cast<unsigned>(m)) - 1 - positive;
    int part = m - parts(decade);
    return std::fmaf(static_cast<float>(part) + 0.5f, width(decade), floors[decade]);
  }
  /// Number of values between 0 and 1.
  int last() const { return positive ? 254 : 127; }
  /// The nearest value's number, the larger on ties.
  int encode(float x) const {
    int low = 0, high = last() + 1;
    while (low < high) {
      int middle = (low + high + 1) / 2;
      float between = 0.5f * (value(middle - 1) + value(middle));
      x >= between ? low = middle : high = middle - 1;
    }
    return low;
  }
};

} // namespace

LogicalResult SplitHighOp::evaluate(Evaluation &eval) {
  HostTensor &y = eval.result(0);
  for (size_t i = 0; i < y.reals.size(); ++i)
    y.reals[i] = realOf(highOf(bitsOf(eval.operand(0).reals[i])));
  return success();
}

LogicalResult SplitLowOp::evaluate(Evaluation &eval) {
  HostTensor &y = eval.result(0);
  for (size_t i = 0; i < y.integers.size(); ++i) {
    uint32_t bits = bitsOf(eval.operand(0).reals[i]);
    y.integers[i] = static_cast<int32_t>(bits - highOf(bits));
  }
  return success();
}

LogicalResult JoinSplitOp::evaluate(Evaluation &eval) {
  HostTensor &y = eval.result(0);
  for (size_t i = 0; i < y.reals.size(); ++i)
    y.reals[i] = realOf(bitsOf(eval.operand(0).reals[i]) +
                        static_cast<uint32_t>(eval.operand(1).integers[i]));
  return success();
}

LogicalResult RoundStochasticOp::evaluate(Evaluation &eval) {
  HostTensor &y = eval.result(0);
  for (size_t i = 0; i < y.reals.size(); ++i) {
    uint32_t bits = bitsOf(eval.operand(0).reals[i]);
    auto noise = static_cast<uint32_t>(eval.operand(1).reals[i] * 65536);
    bool finite = (bits & 0x7F800000) != 0x7F800000;
    // NaN keeps a bit that survives.
    uint32_t kept = (bits & 0x7FFFFF) ? bits | 0x400000 : bits;
    y.reals[i] = realOf((finite ? bits + noise : kept) & 0xFFFF0000);
  }
  return success();
}

LogicalResult DynamicEncodeOp::evaluate(Evaluation &eval) {
  HostTensor &y = eval.result(0);
  DynamicMap map{getPositive()};
  for (size_t i = 0; i < y.integers.size(); ++i) {
    auto x = static_cast<float>(eval.operand(0).reals[i]);
    int n = map.encode(map.positive ? x : std::fabs(x));
    if (!map.positive && n == 128 && x < 0)
      n = 127; // -1 has no code
    y.integers[i] = static_cast<int8_t>(!map.positive && x < 0 ? -n : n);
  }
  return success();
}

LogicalResult DynamicDecodeOp::evaluate(Evaluation &eval) {
  HostTensor &y = eval.result(0);
  DynamicMap map{getPositive()};
  for (size_t i = 0; i < y.reals.size(); ++i) {
    auto code = static_cast<int>(eval.operand(0).integers[i]);
    if (map.positive)
      y.reals[i] = map.value(code & 0xFF);
    else
      y.reals[i] =
          code < 0 && code != -128 ? -map.value(-code) : map.value(std::abs(code));
  }
  return success();
}

// --- vector code

namespace {

VectorType lanesOf(Value x, Type element) {
  return VectorType::get(cast<VectorType>(x.getType()).getShape(), element);
}

/// The dynamic map on vectors of numbers in order of size, as i32.
class DynamicLanes {
public:
  DynamicLanes(ImplicitLocOpBuilder &b, bool positive) : b(b), m(b), map{positive} {}

  Value value(Value n) {
    Value place = toReal(m.addInteger(n, map.positive));
    // The power of two below it is the number of parts of its decade.
    Value parts = m.realBits(
        b.create<arith::AndIOp>(m.integerBits(place), m.splatInteger(n, 0x7F800000)));
    auto isIn = [&](int decade) { return m.equal(parts, map.parts(decade)); };
    Value width = ofDecade(parts, isIn, [&](int d) { return map.width(d); });
    Value floor = ofDecade(parts, isIn, [&](int d) { return map.floors[d]; });
    Value y = m.fma(m.shift(m.sub(place, parts), 0.5), width, floor);
    y = m.select(is(arith::CmpIPredicate::sgt, n, map.last()), m.splat(y, 1), y);
    return m.select(is(arith::CmpIPredicate::slt, n, 1), m.splat(y, 0), y);
  }

  /// x >= 0, at most 1 (more counts as 1, NaN as 0).
  Value encode(Value x) {
    Value a = m.select(m.greater(x, 0), x, m.splat(x, 0));
    a = m.select(m.greater(a, 1), m.splat(x, 1), a);
    auto isIn = [&](int d) { return m.less(a, map.floors[d + 1]); };
    Value parts = ofDecade(a, isIn, [&](int d) { return map.parts(d); });
    Value floor = ofDecade(a, isIn, [&](int d) { return map.floors[d]; });
    Value perWidth = ofDecade(a, isIn, [&](int d) { return 1 / map.width(d); });
    Value part = m.mul(m.sub(a, floor), perWidth);
    part = m.select(m.greater(part, 0), part, m.splat(a, 0));
    Value most = m.shift(parts, -1);
    part = m.select(m.less(most, part), most, part);
    Type i32 = b.getI32Type();
    Value guess = b.create<arith::FPToSIOp>(lanesOf(x, i32), m.add(parts, part));
    return settle(a, m.addInteger(guess, -static_cast<int>(map.positive)));
  }

  Value toReal(Value n) {
    return b.create<arith::SIToFPOp>(lanesOf(n, b.getF32Type()), n);
  }
  Value is(arith::CmpIPredicate predicate, Value n, int64_t value) {
    return b.create<arith::CmpIOp>(predicate, n, m.splatInteger(n, value));
  }

private:
  /// The guess is at most one off: middles between values decide.
  Value settle(Value a, Value n) {
    Value here = value(n), above = m.addInteger(n, 1), below = m.addInteger(n, -1);
    Value upper = m.scale(m.add(here, value(above)), 0.5);
    Value lower = m.scale(m.add(value(below), here), 0.5);
    Value down = m.select(m.less(a, lower), below, n);
    return m.select(m.less(a, upper), down, above);
  }

  /// `f` of the first decade for which `isIn` holds, else of the last.
  template <class IsIn, class F> Value ofDecade(Value like, IsIn isIn, F f) {
    Value y = m.splat(like, f(map.decades - 1));
    for (int d = map.decades - 2; d >= 0; --d)
      y = m.select(isIn(d), m.splat(like, f(d)), y);
    return y;
  }

  ImplicitLocOpBuilder &b;
  VectorMath m;
  DynamicMap map;
};

/// bits + 0x8000, the lower half cleared.
Value highBits(VectorMath &m, ImplicitLocOpBuilder &b, Value bits) {
  return b.create<arith::AndIOp>(m.addInteger(bits, 0x8000),
                                 m.splatInteger(bits, -0x10000));
}

Value widen(ImplicitLocOpBuilder &b, Value x) {
  return b.create<arith::ExtSIOp>(lanesOf(x, b.getI64Type()), x);
}
Value narrow(ImplicitLocOpBuilder &b, Value x) {
  return b.create<arith::TruncIOp>(lanesOf(x, b.getI32Type()), x);
}

} // namespace

Value SplitHighOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  VectorMath m(b);
  return m.realBits(highBits(m, b, m.integerBits(v[0])));
}

Value SplitLowOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  VectorMath m(b);
  Value bits = m.integerBits(v[0]);
  return widen(b, b.create<arith::SubIOp>(bits, highBits(m, b, bits)));
}

Value JoinSplitOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  VectorMath m(b);
  return m.realBits(b.create<arith::AddIOp>(m.integerBits(v[0]), narrow(b, v[1])));
}

Value RoundStochasticOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  VectorMath m(b);
  Value bits = m.integerBits(v[0]);
  Value noise = b.create<arith::FPToSIOp>(bits.getType(), m.scale(v[1], 65536));
  Value exponent = b.create<arith::AndIOp>(bits, m.splatInteger(bits, 0x7F800000));
  Value finite = b.create<arith::CmpIOp>(arith::CmpIPredicate::ne, exponent,
                                         m.splatInteger(bits, 0x7F800000));
  Value quiet = b.create<arith::OrIOp>(bits, m.splatInteger(bits, 0x400000));
  Value isNan = b.create<arith::CmpFOp>(arith::CmpFPredicate::UNO, v[0], v[0]);
  Value kept = m.select(isNan, quiet, bits);
  Value moved = m.select(finite, b.create<arith::AddIOp>(bits, noise), kept);
  return m.realBits(b.create<arith::AndIOp>(moved, m.splatInteger(bits, -0x10000)));
}

Value DynamicEncodeOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  VectorMath m(b);
  DynamicLanes lanes(b, getPositive());
  if (getPositive()) {
    Value n = lanes.encode(v[0]); // 128 to 255 are the negative i8
    Value low = m.addInteger(n, -256);
    return widen(b, m.select(lanes.is(arith::CmpIPredicate::sgt, n, 127), low, n));
  }
  Value n = lanes.encode(m.abs(v[0]));
  Value most =
      m.select(lanes.is(arith::CmpIPredicate::sgt, n, 127), m.splatInteger(n, 127), n);
  Value minus = b.create<arith::SubIOp>(m.splatInteger(n, 0), most);
  Value plus =
      m.select(lanes.is(arith::CmpIPredicate::sgt, n, 127), m.splatInteger(n, -128), n);
  return widen(b, m.select(m.less(v[0], 0), minus, plus));
}

Value DynamicDecodeOp::emitVector(ImplicitLocOpBuilder &b, ValueRange v) {
  VectorMath m(b);
  DynamicLanes lanes(b, getPositive());
  Value code = narrow(b, v[0]);
  if (getPositive())
    return lanes.value(b.create<arith::AndIOp>(code, m.splatInteger(code, 0xFF)));
  Value negated = b.create<arith::SubIOp>(m.splatInteger(code, 0), code);
  Value isNegative = lanes.is(arith::CmpIPredicate::slt, code, 0);
  Value y = lanes.value(m.select(isNegative, negated, code));
  Value signedY = m.select(isNegative, m.neg(y), y);
  return m.select(lanes.is(arith::CmpIPredicate::eq, code, -128), y, signedY);
}
