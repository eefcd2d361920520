// Elementwise operations: inference, verifiers and reference evaluation, as two tables.
#include "ir/graph/Graph.h"
#include "ir/graph/Integers.h"
#include "ir/graph/Interpreter.h"
#include "ir/graph/Shapes.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace sluice::graph;

#define GET_OP_CLASSES
#include "ir/graph/Elementwise.cpp.inc"

// --- inference

namespace {
enum class Domain { Number, Real, Integer };

/// All operands from `first` have one type, of an element type in the domain.
FailureOr<RankedTensorType> sameType(StringRef op, std::optional<Location> loc,
                                     ValueRange operands, unsigned first, Domain domain) {
  RankedTensorType type = operandType(op, loc, operands, first);
  if (!type)
    return failure();
  Type element = type.getElementType();
  if ((domain == Domain::Real && !isa<FloatType>(element)) ||
      (domain == Domain::Integer && !isa<IntegerType>(element)))
    return emitOptionalError(
        loc, "operand ", first, " of '", op, "' has element type ", element,
        ", expected ", domain == Domain::Real ? "floating point" : "integers or i1");
  for (unsigned i = first + 1; i < operands.size(); ++i) {
    if (operands[i].getType() == type)
      continue;
    StringRef remedy = "";
    if (auto other = dyn_cast<RankedTensorType>(operands[i].getType()))
      remedy = other.getElementType() != element ? "; insert 'graph.cast'"
                                                 : "; insert 'graph.broadcast'";
    return emitOptionalError(loc, "operand ", i, " of '", op, "' has type ",
                             operands[i].getType(), ", expected ", type,
                             " (type of operand ", first, ")", remedy);
  }
  return type;
}
} // namespace

/// Operations of the generated code for all elements of a result.
static double workOf(Value result, double each) {
  return each * tensorType(result).getNumElements();
}

// Operations whose result has the type of their operands: domain, and operations of the
// generated code per element (a division or root counts as 8). From 8 on, recomputing
// costs more than a load.
#define SLUICE_ELEMENTWISE(OP, DOMAIN, FLOPS)                                            \
  LogicalResult OP::inferReturnTypes(MLIRContext *, std::optional<Location> loc,         \
                                     Adaptor adaptor, SmallVectorImpl<Type> &types) {    \
    auto type =                                                                          \
        sameType(getOperationName(), loc, adaptor.getOperands(), 0, Domain::DOMAIN);     \
    if (failed(type))                                                                    \
      return failure();                                                                  \
    types.push_back(*type);                                                              \
    return success();                                                                    \
  }                                                                                      \
  bool OP::isExpensive() { return FLOPS >= 8; }                                          \
  double OP::flops() { return workOf(getResult(), FLOPS); }
SLUICE_ELEMENTWISE(NegOp, Number, 1)
SLUICE_ELEMENTWISE(AbsOp, Number, 1)
SLUICE_ELEMENTWISE(SignOp, Number, 4)
SLUICE_ELEMENTWISE(ExpOp, Real, 34)
SLUICE_ELEMENTWISE(LogOp, Real, 38)
SLUICE_ELEMENTWISE(SqrtOp, Real, 8)
SLUICE_ELEMENTWISE(RsqrtOp, Real, 16)
SLUICE_ELEMENTWISE(SinOp, Real, 64)
SLUICE_ELEMENTWISE(CosOp, Real, 64)
SLUICE_ELEMENTWISE(AtanOp, Real, 36)
SLUICE_ELEMENTWISE(TanhOp, Real, 34)
SLUICE_ELEMENTWISE(SigmoidOp, Real, 44)
SLUICE_ELEMENTWISE(ErfOp, Real, 40)
SLUICE_ELEMENTWISE(ReluOp, Number, 1)
SLUICE_ELEMENTWISE(FloorOp, Real, 1)
SLUICE_ELEMENTWISE(CeilOp, Real, 1)
SLUICE_ELEMENTWISE(RoundOp, Real, 1)
SLUICE_ELEMENTWISE(NotOp, Integer, 1)
SLUICE_ELEMENTWISE(GeluOp, Real, 46)
SLUICE_ELEMENTWISE(SiluOp, Real, 44)
SLUICE_ELEMENTWISE(SoftplusOp, Real, 64)
SLUICE_ELEMENTWISE(AddOp, Number, 1)
SLUICE_ELEMENTWISE(SubOp, Number, 1)
SLUICE_ELEMENTWISE(MulOp, Number, 1)
SLUICE_ELEMENTWISE(DivOp, Number, 8)
SLUICE_ELEMENTWISE(PowOp, Number, 160)
SLUICE_ELEMENTWISE(ModOp, Number, 48)
SLUICE_ELEMENTWISE(MaxOp, Number, 1)
SLUICE_ELEMENTWISE(MinOp, Number, 1)
SLUICE_ELEMENTWISE(AndOp, Integer, 1)
SLUICE_ELEMENTWISE(OrOp, Integer, 1)
SLUICE_ELEMENTWISE(XorOp, Integer, 1)
#undef SLUICE_ELEMENTWISE

bool CompareOp::isExpensive() { return false; }
bool SelectOp::isExpensive() { return false; }
bool CastOp::isExpensive() { return false; }
double CompareOp::flops() { return workOf(getY(), 1); }
double SelectOp::flops() { return workOf(getY(), 1); }
double CastOp::flops() { return workOf(getY(), 1); }

LogicalResult CompareOp::inferReturnTypes(MLIRContext *context,
                                          std::optional<Location> loc, Adaptor adaptor,
                                          SmallVectorImpl<Type> &types) {
  auto type = sameType(getOperationName(), loc, adaptor.getOperands(), 0, Domain::Number);
  if (failed(type))
    return failure();
  types.push_back(type->clone(IntegerType::get(context, 1)));
  return success();
}

LogicalResult CompareOp::verify() {
  static constexpr StringLiteral predicates[] = {"eq", "ne", "lt", "le", "gt", "ge"};
  if (llvm::is_contained(predicates, getPredicate()))
    return success();
  return emitOpError() << "has predicate '" << getPredicate()
                       << "', expected eq, ne, lt, le, gt or ge";
}

LogicalResult SelectOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                         Adaptor adaptor, SmallVectorImpl<Type> &types) {
  StringRef op = getOperationName();
  RankedTensorType condition = operandType(op, loc, adaptor.getOperands(), 0);
  auto type = sameType(op, loc, adaptor.getOperands(), 1, Domain::Number);
  if (!condition || failed(type))
    return failure();
  if (condition.getShape() != type->getShape() ||
      !condition.getElementType().isInteger(1))
    return emitOptionalError(
        loc, "operand 0 of '", op, "' has type ", condition, ", expected ",
        type->clone(IntegerType::get(type->getContext(), 1)), " (shape of operand 1)");
  types.push_back(*type);
  return success();
}

LogicalResult CastOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                       Adaptor adaptor, SmallVectorImpl<Type> &types) {
  RankedTensorType x = operandType(getOperationName(), loc, adaptor.getOperands(), 0);
  if (!x)
    return failure();
  if (!isa<FloatType, IntegerType>(adaptor.getElementType()))
    return emitOptionalError(loc, "'element_type' of '", getOperationName(), "' is ",
                             adaptor.getElementType(),
                             ", expected an integer or floating-point type");
  types.push_back(x.clone(adaptor.getElementType()));
  return success();
}

// --- evaluation

namespace {

struct None {};

template <class Real, class Integer>
LogicalResult map(Evaluation &eval, Real real, Integer integer) {
  const HostTensor &x = eval.operand(0);
  HostTensor &y = eval.result(0);
  for (size_t i = 0; i < y.reals.size(); ++i)
    y.reals[i] = eval.round(real(x.reals[i]));
  if constexpr (!std::is_same_v<Integer, None>)
    for (size_t i = 0; i < y.integers.size(); ++i)
      y.integers[i] = wrap(integer(x.integers[i]), y.elementType);
  return success();
}
template <class Real> LogicalResult map(Evaluation &eval, Real real) {
  return map(eval, real, None());
}

template <class Real, class Integer>
LogicalResult zip(Evaluation &eval, Real real, Integer integer) {
  const HostTensor &a = eval.operand(0), &b = eval.operand(1);
  HostTensor &y = eval.result(0);
  for (size_t i = 0; i < y.reals.size(); ++i)
    y.reals[i] = eval.round(real(a.reals[i], b.reals[i]));
  for (size_t i = 0; i < y.integers.size(); ++i)
    y.integers[i] = wrap(integer(a.integers[i], b.integers[i]), y.elementType);
  return success();
}

/// Division by zero gives 0 (as the generated code does).
int64_t divInteger(int64_t a, int64_t b) {
  return b == 0 ? 0 : b == -1 ? subWrap(0, a) : a / b;
}
int64_t remainder(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }
int64_t floorMod(int64_t a, int64_t b) {
  const int64_t r = remainder(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
/// Negative exponents give the truncated reciprocal.
int64_t powInteger(int64_t base, int64_t exponent) {
  if (exponent < 0)
    return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  int64_t result = 1;
  for (; exponent; exponent >>= 1, base = mulWrap(base, base))
    if (exponent & 1)
      result = mulWrap(result, base);
  return result;
}

double exponential(double x) {
  const double y = std::exp(x);
  return y < 0x1p-126 ? 0.0 : y; // part of the definition; NaN stays
}
double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double gelu(double x) { return 0.5 * x * (1.0 + std::erf(x * M_SQRT1_2)); }
double geluTanh(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(M_2_PI) * (x + 0.044715 * x * x * x)));
}
double floatMod(double a, double b) {
  const double r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
double maximum(double a, double b) {
  if (std::isnan(a) || std::isnan(b))
    return std::numeric_limits<double>::quiet_NaN();
  return a == b ? (std::signbit(a) ? b : a) : std::max(a, b); // +0 above -0
}
double minimum(double a, double b) { return -maximum(-a, -b); }
template <class T> T signOf(T x) { return x > 0 ? T(1) : x < 0 ? T(-1) : x; }

template <class T> bool holds(StringRef predicate, T a, T b) {
  if (predicate == "eq")
    return a == b;
  if (predicate == "ne")
    return a != b;
  if (predicate == "lt")
    return a < b;
  if (predicate == "le")
    return a <= b;
  return predicate == "gt" ? a > b : a >= b;
}

/// Truncates; NaN gives 0 and values out of range the nearest integer of the type.
int64_t toInteger(double x, Type type) {
  if (type.isInteger(1))
    return x != 0;
  const unsigned width = type.getIntOrFloatBitWidth();
  const double limit = std::ldexp(1.0, width - 1);
  const int64_t largest =
      width == 64 ? std::numeric_limits<int64_t>::max() : (1LL << (width - 1)) - 1;
  return std::isnan(x) ? 0
         : x >= limit  ? largest
         : x < -limit  ? -largest - 1
                       : static_cast<int64_t>(x);
}

} // namespace

#define SLUICE_MAP(OP, ...)                                                              \
  LogicalResult OP::evaluate(Evaluation &eval) { return map(eval, __VA_ARGS__); }
#define SLUICE_ZIP(OP, ...)                                                              \
  LogicalResult OP::evaluate(Evaluation &eval) { return zip(eval, __VA_ARGS__); }
SLUICE_MAP(NegOp, [](double x) { return -x; }, [](int64_t x) { return subWrap(0, x); })
SLUICE_MAP(
    AbsOp, [](double x) { return std::fabs(x); },
    [](int64_t x) { return x < 0 ? subWrap(0, x) : x; })
SLUICE_MAP(SignOp, signOf<double>, signOf<int64_t>)
SLUICE_MAP(ExpOp, exponential)
SLUICE_MAP(LogOp, [](double x) { return std::log(x); })
SLUICE_MAP(SqrtOp, [](double x) { return std::sqrt(x); })
SLUICE_MAP(RsqrtOp, [&](double x) { return 1.0 / eval.round(std::sqrt(x)); })
SLUICE_MAP(SinOp, [](double x) { return std::sin(x); })
SLUICE_MAP(CosOp, [](double x) { return std::cos(x); })
SLUICE_MAP(AtanOp, [](double x) { return std::atan(x); })
SLUICE_MAP(TanhOp, [](double x) { return std::tanh(x); })
SLUICE_MAP(SigmoidOp, sigmoid)
SLUICE_MAP(ErfOp, [](double x) { return std::erf(x); })
SLUICE_MAP(
    ReluOp, [](double x) { return x > 0 || std::isnan(x) ? x : 0.0; },
    [](int64_t x) { return x > 0 ? x : 0; })
SLUICE_MAP(FloorOp, [](double x) { return std::floor(x); })
SLUICE_MAP(CeilOp, [](double x) { return std::ceil(x); })
SLUICE_MAP(RoundOp, [](double x) { return std::nearbyint(x); })
SLUICE_MAP(NotOp, [](double x) { return x; }, [](int64_t x) { return ~x; })
SLUICE_MAP(GeluOp,
           [form = getTanhForm()](double x) { return form ? geluTanh(x) : gelu(x); })
SLUICE_MAP(SiluOp, [](double x) { return x / (1.0 + std::exp(-x)); })
SLUICE_MAP(SoftplusOp, [](double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
})
SLUICE_ZIP(AddOp, [](double a, double b) { return a + b; }, addWrap)
SLUICE_ZIP(SubOp, [](double a, double b) { return a - b; }, subWrap)
SLUICE_ZIP(MulOp, [](double a, double b) { return a * b; }, mulWrap)
SLUICE_ZIP(DivOp, [](double a, double b) { return a / b; }, divInteger)
SLUICE_ZIP(PowOp, [](double a, double b) { return std::pow(a, b); }, powInteger)
SLUICE_ZIP(
    ModOp,
    [form = getFmod()](double a, double b) {
      return form ? std::fmod(a, b) : floatMod(a, b);
    },
    [form = getFmod()](int64_t a, int64_t b) {
      return form ? remainder(a, b) : floorMod(a, b);
    })
SLUICE_ZIP(MaxOp, maximum, [](int64_t a, int64_t b) { return std::max(a, b); })
SLUICE_ZIP(MinOp, minimum, [](int64_t a, int64_t b) { return std::min(a, b); })
SLUICE_ZIP(
    AndOp, [](double a, double) { return a; }, [](int64_t a, int64_t b) { return a & b; })
SLUICE_ZIP(
    OrOp, [](double a, double) { return a; }, [](int64_t a, int64_t b) { return a | b; })
SLUICE_ZIP(
    XorOp, [](double a, double) { return a; }, [](int64_t a, int64_t b) { return a ^ b; })
#undef SLUICE_MAP
#undef SLUICE_ZIP

LogicalResult CompareOp::evaluate(Evaluation &eval) {
  const HostTensor &a = eval.operand(0), &b = eval.operand(1);
  std::vector<int64_t> &y = eval.result(0).integers;
  for (size_t i = 0; i < y.size(); ++i)
    y[i] = a.isReal() ? holds(getPredicate(), a.reals[i], b.reals[i])
                      : holds(getPredicate(), a.integers[i], b.integers[i]);
  return success();
}

LogicalResult SelectOp::evaluate(Evaluation &eval) {
  const std::vector<int64_t> &condition = eval.operand(0).integers;
  HostTensor &y = eval.result(0);
  for (size_t i = 0; i < y.reals.size(); ++i)
    y.reals[i] = eval.operand(condition[i] ? 1 : 2).reals[i];
  for (size_t i = 0; i < y.integers.size(); ++i)
    y.integers[i] = eval.operand(condition[i] ? 1 : 2).integers[i];
  return success();
}

LogicalResult CastOp::evaluate(Evaluation &eval) {
  const HostTensor &x = eval.operand(0);
  HostTensor &y = eval.result(0);
  const bool single = eval.round(0x1p-1074) == 0;
  for (size_t i = 0; i < y.reals.size(); ++i) {
    if (x.isReal())
      y.reals[i] = eval.round(x.reals[i]);
    else // one rounding, from 64 bits
      y.reals[i] =
          single ? static_cast<float>(x.integers[i]) : static_cast<double>(x.integers[i]);
    y.reals[i] = toNarrow(y.reals[i], y.elementType);
  }
  for (size_t i = 0; i < y.integers.size(); ++i) {
    if (x.isReal())
      y.integers[i] = toInteger(x.reals[i], y.elementType);
    else
      y.integers[i] = y.elementType.isInteger(1) ? x.integers[i] != 0
                                                 : wrap(x.integers[i], y.elementType);
  }
  return success();
}
