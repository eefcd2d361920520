// Arithmetic and elementary functions.
#include "frontend/onnx/Elementwise.h"
#include "frontend/onnx/OpTable.h"

#include <cmath>
#include <numbers>

namespace sluice::frontend {

Value secondOperand(Node &n, Value first) {
  Value second = n.in(1);
  if (!first || !second || n.version >= 7 || !n.i("broadcast", 0) || !n.hasAttr("axis"))
    return second;
  auto axis = n.axis(n.i("axis", 0), rankOf(first));
  if (!axis)
    return {};
  Ints shape(shapeOf(second));
  if (*axis + rankOf(second) > rankOf(first))
    return n.e.fail("attribute 'axis' is out of range");
  shape.resize(rankOf(first) - *axis, 1);
  return n.e.reshape(second, shape);
}

Value clamp(Emitter &e, Value x, double low, double high) {
  Value y = e.select(e.cmp(x, low, "lt"), e.like(x, low), x);
  return e.select(e.cmp(y, high, "gt"), e.like(y, high), y);
}
Value positiveOr(Emitter &e, Value x, Value negative) {
  return e.select(e.cmp(x, 0, "gt"), x, negative);
}
Value negativePart(Emitter &e, Value x) {
  return e.select(e.cmp(x, 0, "gt"), e.like(x, 0), x);
}

namespace {

template <const char *name> LogicalResult unary(Node &n) {
  return n.out(n.e.un(name, n.in(0)));
}
template <const char *name> LogicalResult binary(Node &n) {
  Value a = n.in(0);
  Value y = n.e.bin(name, a, secondOperand(n, a));
  return n.out(y && isFloat(y) ? y : wrapUnsigned(n, y));
}
/// Max, Min, Sum: any number of operands.
template <const char *name> LogicalResult variadic(Node &n) {
  Value result = n.in(0);
  for (int i = 1; i < n.inputs(); ++i)
    result = n.e.bin(name, result, n.in(i));
  return n.out(result);
}

#define NAME(id, text) constexpr char id[] = text
NAME(neg, "neg");
NAME(abs_, "abs");
NAME(sign, "sign");
NAME(exp_, "exp");
NAME(log_, "log");
NAME(sqrt_, "sqrt");
NAME(sin_, "sin");
NAME(cos_, "cos");
NAME(atan_, "atan");
NAME(erf_, "erf");
NAME(floor_, "floor");
NAME(ceil_, "ceil");
NAME(round_, "round");
NAME(add, "add");
NAME(sub, "sub");
NAME(mul, "mul");
NAME(div_, "div");
NAME(max_, "max");
NAME(min_, "min");
#undef NAME

LogicalResult importMean(Node &n) {
  Value sum = n.in(0);
  for (int i = 1; i < n.inputs(); ++i)
    sum = n.e.add(sum, n.in(i));
  return n.out(sum ? n.e.div(sum, n.e.like(sum, n.inputs())) : sum);
}

LogicalResult importReciprocal(Node &n) { return n.out(n.e.div(1, n.in(0))); }

LogicalResult importMod(Node &n) {
  llvm::SmallVector<mlir::NamedAttribute> attributes;
  if (n.i("fmod", 0))
    attributes.push_back(n.e.flag("fmod"));
  return n.out(n.e.bin("mod", n.in(0), n.in(1), attributes));
}

/// Small constant exponents become products, which are exact and have simple gradients.
Value powerOf(Emitter &e, Value x, double exponent) {
  if (exponent == 1)
    return x;
  if (exponent == 2)
    return e.mul(x, x);
  if (exponent == 3)
    return e.mul(e.mul(x, x), x);
  if (exponent == 0.5)
    return e.un("sqrt", x);
  return e.bin("pow", x, e.like(x, exponent));
}

LogicalResult importPow(Node &n) {
  Value x = n.in(0), y = secondOperand(n, x);
  if (!x || !y)
    return failure();
  auto exponent = n.maybeConstant(1);
  if (exponent && isFloat(x) && exponent->size() == 1 && rankOf(y) <= rankOf(x))
    return n.out(powerOf(
        n.e, x, exponent->isReal() ? exponent->reals[0] : double(exponent->integers[0])));
  if (isFloat(x))
    return n.out(n.e.bin("pow", x, n.e.cast(y, elementOf(x))));
  Type wide = n.e.builder.getF64Type(); // integers: exact to 2^53
  Value power = n.e.bin("pow", n.e.cast(x, wide), n.e.cast(y, wide));
  return n.out(n.e.cast(power, elementOf(x)));
}

LogicalResult importClip(Node &n) {
  Value x = n.in(0);
  if (!x)
    return failure();
  Emitter &e = n.e;
  if (n.version < 11) {
    if (n.hasAttr("min"))
      x = e.select(e.cmp(x, n.f("min", 0), "lt"), e.like(x, n.f("min", 0)), x);
    if (n.hasAttr("max"))
      x = e.select(e.cmp(x, n.f("max", 0), "gt"), e.like(x, n.f("max", 0)), x);
    return n.out(x);
  }
  for (int i : {1, 2})
    if (n.has(i)) {
      Value bound = n.in(i);
      if (bound && elementCount(shapeOf(bound)) == 1)
        bound = e.broadcast(e.reshape(bound, {}), shapeOf(x));
      x = e.select(e.cmp(x, bound, i == 1 ? "lt" : "gt"), bound, x);
      if (!x)
        return failure();
    }
  return n.out(x);
}

LogicalResult importTan(Node &n) {
  Value x = n.in(0);
  return n.out(n.e.div(n.e.un("sin", x), n.e.un("cos", x)));
}
LogicalResult importAsin(Node &n) {
  Emitter &e = n.e;
  Value x =
      n.in(0); // atan(x / sqrt((1 - x)(1 + x))): at the ends the quotient is infinite
  Value root = e.un("sqrt", e.mul(e.sub(1, x), e.add(x, 1)));
  return n.out(e.un("atan", e.div(x, root)));
}
LogicalResult importAcos(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0); // 2 atan(sqrt((1 - x) / (1 + x)))
  Value root = e.un("sqrt", e.div(e.sub(1, x), e.add(x, 1)));
  return n.out(e.mul(e.un("atan", root), 2));
}
LogicalResult importSinh(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  return n.out(e.mul(e.sub(e.un("exp", x), e.un("exp", e.un("neg", x))), 0.5));
}
LogicalResult importCosh(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  return n.out(e.mul(e.add(e.un("exp", x), e.un("exp", e.un("neg", x))), 0.5));
}
LogicalResult importAsinh(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0), size = e.un("abs", x); // odd, without cancellation for x < 0
  Value log = e.un("log", e.add(size, e.un("sqrt", e.add(e.mul(x, x), 1))));
  return n.out(e.mul(e.un("sign", x), log));
}
LogicalResult importAcosh(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  return n.out(e.un("log", e.add(x, e.un("sqrt", e.add(e.mul(x, x), -1)))));
}
LogicalResult importAtanh(Node &n) {
  Emitter &e = n.e;
  Value x = n.in(0);
  return n.out(e.mul(e.un("log", e.div(e.add(x, 1), e.sub(1, x))), 0.5));
}

} // namespace

void addMath(OpTable &table) {
  table["Neg"] = unary<neg>;
  table["Abs"] = unary<abs_>;
  table["Sign"] = unary<sign>;
  table["Exp"] = unary<exp_>;
  table["Log"] = unary<log_>;
  table["Sqrt"] = unary<sqrt_>;
  table["Sin"] = unary<sin_>;
  table["Cos"] = unary<cos_>;
  table["Tan"] = importTan;
  table["Asin"] = importAsin;
  table["Acos"] = importAcos;
  table["Atan"] = unary<atan_>;
  table["Sinh"] = importSinh;
  table["Cosh"] = importCosh;
  table["Asinh"] = importAsinh;
  table["Acosh"] = importAcosh;
  table["Atanh"] = importAtanh;
  table["Erf"] = unary<erf_>;
  table["Floor"] = unary<floor_>;
  table["Ceil"] = unary<ceil_>;
  table["Round"] = unary<round_>;
  table["Reciprocal"] = importReciprocal;
  table["Add"] = binary<add>;
  table["Sub"] = binary<sub>;
  table["Mul"] = binary<mul>;
  table["Div"] = binary<div_>;
  table["Pow"] = importPow;
  table["Mod"] = importMod;
  table["Max"] = variadic<max_>;
  table["Min"] = variadic<min_>;
  table["Sum"] = variadic<add>;
  table["Mean"] = importMean;
  table["Clip"] = importClip;
}

} // namespace sluice::frontend
