// Reductions and running sums.
#include "ir/graph/GraphBuilder.h"
#include "ir/graph/Integers.h"
#include "ir/graph/Interpreter.h"
#include "ir/graph/Shapes.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace sluice::graph;

#define GET_OP_CLASSES
#include "ir/graph/Reduce.cpp.inc"

namespace {

/// The shape with one dimension taken out, or made 1 with `keep`.
SmallVector<int64_t> without(ArrayRef<int64_t> shape, ArrayRef<int64_t> axes, bool keep) {
  SmallVector<int64_t> result;
  for (auto [i, size] : llvm::enumerate(shape)) {
    const bool reduced = llvm::is_contained(axes, static_cast<int64_t>(i));
    if (!reduced || keep)
      result.push_back(reduced ? 1 : size);
  }
  return result;
}

/// Smallest and largest value of an integer type (i1 is unsigned).
std::pair<int64_t, int64_t> limits(Type type) {
  const unsigned width = type.getIntOrFloatBitWidth();
  if (width == 1)
    return {0, 1};
  const int64_t most =
      width == 64 ? std::numeric_limits<int64_t>::max() : (1LL << (width - 1)) - 1;
  return {-most - 1, most};
}

/// result[o] = combine(result[o], x[i]) for all i in order, with o the index of i without
/// the reduced dimensions.
template <class T, class Combine>
void fold(const std::vector<T> &x, ArrayRef<int64_t> shape, ArrayRef<int64_t> strides,
          std::vector<T> &result, T start, Combine combine) {
  std::fill(result.begin(), result.end(), start);
  size_t i = 0;
  forEachOffset(shape, strides, 0,
                [&](int64_t o) { result[o] = combine(result[o], x[i++]); });
}

double larger(double a, double b) { return std::isnan(b) || b > a ? b : a; }
double smaller(double a, double b) { return std::isnan(b) || b < a ? b : a; }

void reduceReals(StringRef kind, const HostTensor &x, ArrayRef<int64_t> strides,
                 std::vector<double> &y) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (kind == "sum")
    fold(x.reals, x.shape, strides, y, 0.0, [](double a, double b) { return a + b; });
  else if (kind == "prod")
    fold(x.reals, x.shape, strides, y, 1.0, [](double a, double b) { return a * b; });
  else if (kind == "max")
    fold(x.reals, x.shape, strides, y, -infinity,
         [](double a, double b) { return std::isnan(a) ? a : larger(a, b); });
  else
    fold(x.reals, x.shape, strides, y, infinity,
         [](double a, double b) { return std::isnan(a) ? a : smaller(a, b); });
}

void reduceIntegers(StringRef kind, const HostTensor &x, ArrayRef<int64_t> strides,
                    std::vector<int64_t> &y) {
  auto [least, most] = limits(x.elementType);
  if (kind == "sum")
    fold<int64_t>(x.integers, x.shape, strides, y, 0, [&](int64_t a, int64_t b) {
      return wrap(addWrap(a, b), x.elementType);
    });
  else if (kind == "prod")
    fold<int64_t>(x.integers, x.shape, strides, y, 1, [&](int64_t a, int64_t b) {
      return wrap(mulWrap(a, b), x.elementType);
    });
  else if (kind == "max")
    fold<int64_t>(x.integers, x.shape, strides, y, least,
                  [](int64_t a, int64_t b) { return std::max(a, b); });
  else
    fold<int64_t>(x.integers, x.shape, strides, y, most,
                  [](int64_t a, int64_t b) { return std::min(a, b); });
}

} // namespace

// --- reduce

LogicalResult ReduceOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                         Adaptor adaptor, SmallVectorImpl<Type> &types) {
  StringRef op = getOperationName(), kind = adaptor.getKind();
  RankedTensorType x = operandType(op, loc, adaptor.getOperands(), 0);
  ArrayRef<int64_t> axes = adaptor.getAxes();
  if (!x || failed(checkDimensions(op, loc, "axes", axes, x.getRank())))
    return failure();
  if (!llvm::is_sorted(axes))
    return emitOptionalError(loc, "'axes' of '", op, "' is ", listText(axes),
                             ", expected it sorted");
  if (kind != "sum" && kind != "max" && kind != "min" && kind != "prod")
    return emitOptionalError(loc, "'kind' of '", op, "' is '", kind,
                             "', expected sum, max, min or prod");
  types.push_back(RankedTensorType::get(without(x.getShape(), axes, adaptor.getKeep()),
                                        x.getElementType()));
  return success();
}

LogicalResult ReduceOp::evaluate(Evaluation &eval) {
  const HostTensor &x = eval.operand(0);
  HostTensor &y = eval.result(0);
  SmallVector<int64_t> strides = stridesOf(without(x.shape, getAxes(), /*keep=*/true));
  for (int64_t axis : getAxes())
    strides[axis] = 0;
  if (!x.isReal()) {
    reduceIntegers(getKind(), x, strides, y.integers);
    return success();
  }
  reduceReals(getKind(), x, strides, y.reals);
  for (double &value : y.reals)
    value = eval.round(value);
  return success();
}

/// Elements equal to the extremum share the cotangent.
static Value extremumGradient(GraphBuilder &b, Value dy, Value x, Value y,
                              ArrayRef<int64_t> axes) {
  ArrayRef<int64_t> shape = tensorType(x).getShape();
  Value hit = b.cast(b.compare(x, "eq", b.spread(y, shape, axes)),
                     tensorType(x).getElementType());
  Value count = b.reduce(hit, "sum", axes, /*keep=*/true);
  Value share = b.div(b.reshape(dy, tensorType(count).getShape()), count);
  return b.mul(hit, b.spread(share, shape, axes));
}

/// With p the product of the elements that are not zero: d p / x without zeros; with one
/// zero d p there and 0 elsewhere; else 0.
static Value productGradient(GraphBuilder &b, Value dy, Value x, ArrayRef<int64_t> axes) {
  ArrayRef<int64_t> shape = tensorType(x).getShape();
  Value zero = b.splatLike(x, 0);
  Value isZero = b.compare(x, "eq", zero);
  Value ones = b.cast(isZero, tensorType(x).getElementType());
  Value filled = b.select(isZero, b.splatLike(x, 1), x);
  Value p = b.reduce(filled, "prod", axes, /*keep=*/true);
  Value zeros = b.reduce(ones, "sum", axes, /*keep=*/true);
  Value others =
      b.sub(b.spread(zeros, shape, axes), ones); // zeros among the other elements
  Value scaled = b.mul(b.reshape(dy, tensorType(p).getShape()), p);
  Value slope = b.div(b.spread(scaled, shape, axes), filled);
  return b.select(b.compare(others, "eq", zero), slope, zero);
}

LogicalResult ReduceOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  GraphBuilder b(getLoc(), builder);
  Value dy = context.cotangent();
  if (!dy || !context.needs(0) || !isa<FloatType>(tensorType(getX()).getElementType()))
    return success();
  if (getKind() == "sum")
    context.set(0, b.spread(dy, tensorType(getX()).getShape(), getAxes()));
  else if (getKind() == "prod")
    context.set(0, productGradient(b, dy, getX(), getAxes()));
  else
    context.set(0, extremumGradient(b, dy, getX(), getY(), getAxes()));
  return success();
}

// --- argmax

LogicalResult ArgMaxOp::inferReturnTypes(MLIRContext *context,
                                         std::optional<Location> loc, Adaptor adaptor,
                                         SmallVectorImpl<Type> &types) {
  StringRef op = getOperationName();
  RankedTensorType x = operandType(op, loc, adaptor.getOperands(), 0);
  const int64_t axis = adaptor.getAxis();
  if (!x || failed(checkRange(op, loc, "axis", axis, x.getRank())))
    return failure();
  SmallVector<int64_t> shape = without(x.getShape(), axis, adaptor.getKeep());
  if (x.getDimSize(axis) == 0 && product(shape) != 0)
    return emitOptionalError(loc, "operand 0 of '", op, "' has no elements in dimension ",
                             axis, ", expected at least 1");
  types.push_back(RankedTensorType::get(shape, IntegerType::get(context, 64)));
  return success();
}

/// NaN beats every number, the first NaN is kept.
template <class T>
static int64_t extremumIndex(const T *x, const AxisView &view, bool minimum, bool last) {
  int64_t best = 0;
  for (int64_t i = 1; i < view.size; ++i) {
    const T candidate = x[i * view.inner], current = x[best * view.inner];
    if (current != current)
      break;
    const bool wins = candidate != candidate ||
                      (minimum ? candidate < current : candidate > current) ||
                      (last && candidate == current);
    best = wins ? i : best;
  }
  return best;
}

LogicalResult ArgMaxOp::evaluate(Evaluation &eval) {
  const HostTensor &x = eval.operand(0);
  AxisView view(x.shape, getAxis());
  int64_t *y = eval.result(0).integers.data();
  if (x.size() == 0)
    return success();
  for (int64_t o = 0; o < view.outer; ++o)
    for (int64_t n = 0; n < view.inner; ++n) {
      const int64_t offset = o * view.size * view.inner + n;
      *y++ =
          x.isReal()
              ? extremumIndex(x.reals.data() + offset, view, getMinimum(), getLast())
              : extremumIndex(x.integers.data() + offset, view, getMinimum(), getLast());
    }
  return success();
}

// --- cumsum

LogicalResult CumSumOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                         Adaptor adaptor, SmallVectorImpl<Type> &types) {
  StringRef op = getOperationName();
  RankedTensorType x = operandType(op, loc, adaptor.getOperands(), 0);
  if (!x || failed(checkRange(op, loc, "axis", adaptor.getAxis(), x.getRank())))
    return failure();
  types.push_back(x);
  return success();
}

template <class T, class Add>
static void runningSum(const T *x, T *y, const AxisView &view, bool exclusive,
                       bool reverse, Add add) {
  T sum = 0;
  for (int64_t step = 0; step < view.size; ++step) {
    const int64_t i = (reverse ? view.size - 1 - step : step) * view.inner;
    const T next = add(sum, x[i]);
    y[i] = exclusive ? sum : next;
    sum = next;
  }
}

LogicalResult CumSumOp::evaluate(Evaluation &eval) {
  const HostTensor &x = eval.operand(0);
  HostTensor &y = eval.result(0);
  AxisView view(x.shape, getAxis());
  auto addReals = [&](double a, double b) { return eval.round(a + b); };
  auto addIntegers = [&](int64_t a, int64_t b) {
    return wrap(addWrap(a, b), y.elementType);
  };
  for (int64_t o = 0; o < view.outer; ++o)
    for (int64_t n = 0; n < view.inner; ++n) {
      const int64_t offset = o * view.size * view.inner + n;
      if (x.isReal())
        runningSum(x.reals.data() + offset, y.reals.data() + offset, view, getExclusive(),
                   getReverse(), addReals);
      else
        runningSum(x.integers.data() + offset, y.integers.data() + offset, view,
                   getExclusive(), getReverse(), addIntegers);
    }
  return success();
}

LogicalResult CumSumOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  GraphBuilder b(getLoc(), builder);
  Value dy = context.cotangent();
  if (dy && context.needs(0) && isa<FloatType>(tensorType(getX()).getElementType()))
    context.set(0, b.make<CumSumOp>(dy, getAxis(), getExclusive(), !getReverse()));
  return success();
}

// --- cost: one operation per element read

double ReduceOp::flops() { return tensorType(getX()).getNumElements(); }
double ArgMaxOp::flops() { return tensorType(getX()).getNumElements(); }
double CumSumOp::flops() { return tensorType(getX()).getNumElements(); }
