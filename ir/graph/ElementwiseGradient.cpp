// Gradients of the elementwise operations. Where a derivative does not exist the choice
// is PyTorch's. The forward result is used instead of the operand where that is cheaper.
#include "ir/graph/GraphBuilder.h"

#include <cmath>

using namespace mlir;
using namespace sluice::graph;

namespace {
/// What most rules need: the builder, the cotangent `d` and the operation's result `y`.
struct Rule {
  GraphBuilder b;
  Value d, y;
  GradientContext &context;
  bool active; // false: the cotangent is zero, or the values are integers

  Rule(Operation *op, OpBuilder &builder, GradientContext &context)
      : b(op->getLoc(), builder), d(context.cotangent()), y(op->getResult(0)),
        context(context), active(d && isa<FloatType>(tensorType(y).getElementType())) {}
  bool needs(unsigned operand) const { return active && context.needs(operand); }
  LogicalResult set(Value dx) {
    context.set(0, dx);
    return success();
  }
};

/// The splat value of a constant operand, if it is one.
std::optional<double> constantSplat(Value value) {
  auto constant = value.getDefiningOp<ConstantOp>();
  auto elements = constant ? dyn_cast<DenseElementsAttr>(constant.getValue()) : nullptr;
  if (!elements || !elements.isSplat() || !isa<FloatType>(elements.getElementType()))
    return std::nullopt;
  APFloat splat = elements.getSplatValue<APFloat>();
  bool loses = false;
  splat.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &loses);
  return splat.convertToDouble();
}
} // namespace

// A rule for one operand: the expression is dx in terms of b, x, y and d.
#define SLUICE_UNARY_GRADIENT(OP, DX)                                                    \
  LogicalResult OP::buildGradient(OpBuilder &builder, GradientContext &context) {        \
    Rule rule(*this, builder, context);                                                  \
    if (!rule.needs(0))                                                                  \
      return success();                                                                  \
    GraphBuilder &b = rule.b;                                                            \
    Value x = getX(), y = rule.y, d = rule.d;                                            \
    (void)x, (void)y;                                                                    \
    return rule.set(DX);                                                                 \
  }
SLUICE_UNARY_GRADIENT(NegOp, b.neg(d))
SLUICE_UNARY_GRADIENT(AbsOp, b.mul(d, b.make<SignOp>(x)))
SLUICE_UNARY_GRADIENT(ExpOp, b.mul(d, y))
SLUICE_UNARY_GRADIENT(LogOp, b.div(d, x))
SLUICE_UNARY_GRADIENT(SqrtOp, b.div(b.scale(d, 0.5), y))
SLUICE_UNARY_GRADIENT(RsqrtOp, b.mul(b.scale(d, -0.5), b.mul(y, b.square(y))))
SLUICE_UNARY_GRADIENT(SinOp, b.mul(d, b.make<CosOp>(x)))
SLUICE_UNARY_GRADIENT(CosOp, b.neg(b.mul(d, b.make<SinOp>(x))))
SLUICE_UNARY_GRADIENT(AtanOp, b.div(d, b.shift(b.square(x), 1)))
SLUICE_UNARY_GRADIENT(TanhOp, b.mul(d, b.sub(b.splatLike(y, 1), b.square(y))))
SLUICE_UNARY_GRADIENT(SigmoidOp, b.mul(d, b.mul(y, b.sub(b.splatLike(y, 1), y))))
SLUICE_UNARY_GRADIENT(ErfOp, b.mul(b.scale(d, M_2_SQRTPI), b.exp(b.neg(b.square(x)))))
SLUICE_UNARY_GRADIENT(ReluOp, b.select(b.compare(y, "le", b.splatLike(y, 0)),
                                       b.splatLike(d, 0), d))
SLUICE_UNARY_GRADIENT(SoftplusOp, b.mul(d, b.make<SigmoidOp>(x)))
#undef SLUICE_UNARY_GRADIENT

// Piecewise constant or of integers: the gradient is zero.
#define SLUICE_NO_GRADIENT(OP)                                                           \
  LogicalResult OP::buildGradient(OpBuilder &, GradientContext &) { return success(); }
SLUICE_NO_GRADIENT(SignOp)
SLUICE_NO_GRADIENT(FloorOp)
SLUICE_NO_GRADIENT(CeilOp)
SLUICE_NO_GRADIENT(NotOp)
SLUICE_NO_GRADIENT(AndOp)
SLUICE_NO_GRADIENT(OrOp)
SLUICE_NO_GRADIENT(XorOp)
SLUICE_NO_GRADIENT(CompareOp)
#undef SLUICE_NO_GRADIENT

/// The estimator of Bengio, Leonard and Courville (arXiv:1308.3432).
LogicalResult RoundOp::buildGradient(OpBuilder &, GradientContext &context) {
  if (getStraightThrough() && context.needs(0))
    context.set(0, context.cotangent());
  return success();
}

/// gelu = x P(x) with P the normal distribution function: dx = d (P + x P').
static Value geluSlope(GraphBuilder &b, Value x) {
  Value density = b.scale(b.exp(b.scale(b.square(x), -0.5)), M_2_SQRTPI * M_SQRT1_2 / 2);
  Value p = b.shift(b.scale(b.make<ErfOp>(b.scale(x, M_SQRT1_2)), 0.5), 0.5);
  return b.add(p, b.mul(x, density));
}

/// With t = tanh(c (x + k x^3)): (1 + t) / 2 + x (1 - t^2) c (1 + 3 k x^2) / 2.
static Value geluTanhSlope(GraphBuilder &b, Value x) {
  const double c = std::sqrt(M_2_PI), k = 0.044715;
  Value squared = b.square(x);
  Value t = b.make<TanhOp>(b.mul(x, b.shift(b.scale(squared, c * k), c)));
  Value inner = b.mul(x, b.shift(b.scale(squared, 1.5 * c * k), 0.5 * c));
  Value curve = b.mul(inner, b.sub(b.splatLike(t, 1), b.square(t)));
  return b.add(b.shift(b.scale(t, 0.5), 0.5), curve);
}

LogicalResult GeluOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  Rule rule(*this, builder, context);
  if (!rule.needs(0))
    return success();
  Value slope = getTanhForm() ? geluTanhSlope(rule.b, getX()) : geluSlope(rule.b, getX());
  return rule.set(rule.b.mul(rule.d, slope));
}

/// y = x s with s = sigmoid(x): dy/dx = s + y (1 - s).
LogicalResult SiluOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  Rule rule(*this, builder, context);
  if (!rule.needs(0))
    return success();
  GraphBuilder &b = rule.b;
  Value s = b.make<SigmoidOp>(getX());
  Value slope = b.add(s, b.mul(rule.y, b.sub(b.splatLike(s, 1), s)));
  return rule.set(b.mul(rule.d, slope));
}

LogicalResult AddOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  Rule rule(*this, builder, context);
  for (unsigned i : {0, 1})
    if (rule.needs(i))
      context.set(i, rule.d);
  return success();
}

LogicalResult SubOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  Rule rule(*this, builder, context);
  if (rule.needs(0))
    context.set(0, rule.d);
  if (rule.needs(1))
    context.set(1, rule.b.neg(rule.d));
  return success();
}

LogicalResult MulOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  Rule rule(*this, builder, context);
  if (rule.needs(0))
    context.set(0, rule.b.mul(rule.d, getB()));
  if (rule.needs(1))
    context.set(1, rule.b.mul(rule.d, getA()));
  return success();
}

LogicalResult DivOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  Rule rule(*this, builder, context);
  if (!rule.needs(0) && !rule.needs(1))
    return success();
  Value da = rule.b.div(rule.d, getB());
  if (rule.needs(0))
    context.set(0, da);
  if (rule.needs(1))
    context.set(1, rule.b.neg(rule.b.mul(da, rule.y)));
  return success();
}

/// d(a^b)/da = b a^(b-1), and 0 where b is 0.
static Value powBaseSlope(GraphBuilder &b, Value base, Value exponent) {
  if (std::optional<double> constant = constantSplat(exponent)) {
    if (*constant == 0)
      return b.splatLike(base, 0);
    if (*constant == 1)
      return b.splatLike(base, 1);
    if (*constant == 2)
      return b.scale(base, 2);
    if (*constant == 3)
      return b.scale(b.square(base), 3);
    Value power = b.make<PowOp>(base, b.splatLike(base, *constant - 1));
    return b.scale(power, *constant);
  }
  Value slope = b.mul(exponent, b.make<PowOp>(base, b.shift(exponent, -1)));
  Value zero = b.splatLike(exponent, 0);
  return b.select(b.compare(exponent, "eq", zero), zero, slope);
}

/// d(a^b)/db = a^b log a, and 0 where a is 0 and b is not negative.
static Value powExponentSlope(GraphBuilder &b, Value base, Value exponent, Value y) {
  Value zero = b.splatLike(y, 0);
  Value flat =
      b.make<AndOp>(b.compare(base, "eq", zero), b.compare(exponent, "ge", zero));
  return b.select(flat, zero, b.mul(y, b.log(base)));
}

LogicalResult PowOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  Rule rule(*this, builder, context);
  if (rule.needs(0))
    context.set(0, rule.b.mul(rule.d, powBaseSlope(rule.b, getA(), getB())));
  if (rule.needs(1))
    context.set(1, rule.b.mul(rule.d, powExponentSlope(rule.b, getA(), getB(), rule.y)));
  return success();
}

/// y = a - q b with q = a / b rounded down (toward zero with `fmod`): dy/db = -q.
LogicalResult ModOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  Rule rule(*this, builder, context);
  if (rule.needs(0))
    context.set(0, rule.d);
  if (!rule.needs(1))
    return success();
  GraphBuilder &b = rule.b;
  Value quotient = b.div(getA(), getB());
  Value down = b.make<FloorOp>(quotient);
  if (getFmod()) {
    Value negative = b.compare(quotient, "lt", b.splatLike(quotient, 0));
    down = b.select(negative, b.make<CeilOp>(quotient), down);
  }
  context.set(1, b.neg(b.mul(rule.d, down)));
  return success();
}

/// The winner takes the cotangent, equal operands half of it each.
static void setExtremumGradient(Rule &rule, Value a, Value b, StringRef loses) {
  if (!rule.needs(0) && !rule.needs(1))
    return;
  GraphBuilder &g = rule.b;
  Value zero = g.splatLike(rule.d, 0);
  Value shared = g.select(g.compare(a, "eq", b), g.scale(rule.d, 0.5), rule.d);
  if (rule.needs(0))
    rule.context.set(0, g.select(g.compare(a, loses, b), zero, shared));
  if (rule.needs(1))
    rule.context.set(1, g.select(g.compare(b, loses, a), zero, shared));
}

LogicalResult MaxOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  Rule rule(*this, builder, context);
  setExtremumGradient(rule, getA(), getB(), "lt");
  return success();
}

LogicalResult MinOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  Rule rule(*this, builder, context);
  setExtremumGradient(rule, getA(), getB(), "gt");
  return success();
}

LogicalResult SelectOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  Rule rule(*this, builder, context);
  if (rule.needs(1))
    context.set(1, rule.b.select(getCondition(), rule.d, rule.b.splatLike(rule.d, 0)));
  if (rule.needs(2))
    context.set(2, rule.b.select(getCondition(), rule.b.splatLike(rule.d, 0), rule.d));
  return success();
}

LogicalResult CastOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  Rule rule(*this, builder, context);
  Type element = tensorType(getX()).getElementType();
  if (rule.needs(0) && isa<FloatType>(element))
    context.set(0, rule.b.cast(rule.d, element));
  return success();
}
