// Reading and writing by index. Negative indices count from the end; an index out of
// range reads as zeros and is not written.
#include "ir/graph/GraphBuilder.h"
#include "ir/graph/Integers.h"
#include "ir/graph/Interpreter.h"
#include "ir/graph/Shapes.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

using namespace mlir;
using namespace sluice::graph;

#define GET_OP_CLASSES
#include "ir/graph/Index.cpp.inc"

namespace {

/// The row an index means, or -1.
int64_t resolve(int64_t index, int64_t size) {
  index += index < 0 ? size : 0;
  return index < 0 || index >= size ? -1 : index;
}

bool wanted(const GradientContext &context, Value operand, unsigned index) {
  return context.cotangent() && context.needs(index) &&
         isa<FloatType>(tensorType(operand).getElementType());
}

LogicalResult checkIndices(StringRef op, std::optional<Location> loc,
                           RankedTensorType type, unsigned operand) {
  if (type.getElementType().isSignlessInteger() && !type.getElementType().isInteger(1))
    return success();
  return emitOptionalError(loc, "operand ", operand, " of '", op, "' has element type ",
                           type.getElementType(), ", expected integers (indices)");
}
} // namespace

// --- iota

LogicalResult IotaOp::inferReturnTypes(MLIRContext *context, std::optional<Location> loc,
                                       Adaptor adaptor, SmallVectorImpl<Type> &types) {
  StringRef op = getOperationName();
  ArrayRef<int64_t> shape = adaptor.getShape();
  if (failed(checkAtLeast(op, loc, "shape", shape, 0)) ||
      failed(checkRange(op, loc, "axis", adaptor.getAxis(), shape.size())))
    return failure();
  types.push_back(RankedTensorType::get(shape, IntegerType::get(context, 64)));
  return success();
}

LogicalResult IotaOp::evaluate(Evaluation &eval) {
  AxisView view(getShape(), getAxis());
  std::vector<int64_t> &y = eval.result(0).integers;
  for (size_t i = 0; i < y.size(); ++i)
    y[i] = static_cast<int64_t>(i) / view.inner % view.size;
  return success();
}

// --- gather and its adjoint

LogicalResult GatherOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                         Adaptor adaptor, SmallVectorImpl<Type> &types) {
  StringRef op = getOperationName();
  RankedTensorType x = operandType(op, loc, adaptor.getOperands(), 0);
  RankedTensorType indices = operandType(op, loc, adaptor.getOperands(), 1);
  const int64_t axis = adaptor.getAxis();
  if (!x || !indices || failed(checkRange(op, loc, "axis", axis, x.getRank())) ||
      failed(checkIndices(op, loc, indices, 1)))
    return failure();
  SmallVector<int64_t> shape(x.getShape().take_front(axis));
  llvm::append_range(shape, indices.getShape());
  llvm::append_range(shape, x.getShape().drop_front(axis + 1));
  types.push_back(RankedTensorType::get(shape, x.getElementType()));
  return success();
}

/// Rows `to` of `y` are rows `indices` of `x`, for each of `outer` blocks.
template <class T>
static void gatherRows(const std::vector<T> &x, ArrayRef<int64_t> indices,
                       const AxisView &view, std::vector<T> &y) {
  auto to = y.begin();
  for (int64_t o = 0; o < view.outer; ++o)
    for (int64_t index : indices) {
      const int64_t row = resolve(index, view.size);
      if (row >= 0)
        std::copy_n(x.begin() + (o * view.size + row) * view.inner, view.inner, to);
      to += view.inner;
    }
}

LogicalResult GatherOp::evaluate(Evaluation &eval) {
  const HostTensor &x = eval.operand(0);
  AxisView view(x.shape, getAxis());
  if (x.isReal())
    gatherRows(x.reals, eval.operand(1).integers, view, eval.result(0).reals);
  else
    gatherRows(x.integers, eval.operand(1).integers, view, eval.result(0).integers);
  return success();
}

LogicalResult GatherOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  GraphBuilder b(getLoc(), builder);
  if (wanted(context, getX(), 0))
    context.set(0, b.make<ScatterAddOp>(getIndices(), context.cotangent(),
                                        tensorType(getX()).getDimSize(getAxis()),
                                        getAxis()));
  return success();
}

LogicalResult ScatterAddOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                             Adaptor adaptor,
                                             SmallVectorImpl<Type> &types) {
  StringRef op = getOperationName();
  RankedTensorType indices = operandType(op, loc, adaptor.getOperands(), 0);
  RankedTensorType updates = operandType(op, loc, adaptor.getOperands(), 1);
  const int64_t axis = adaptor.getAxis(), size = adaptor.getSize();
  if (!indices || !updates || failed(checkIndices(op, loc, indices, 0)) ||
      failed(checkAtLeast(op, loc, "size", size, 0)) ||
      failed(
          checkRange(op, loc, "axis", axis, updates.getRank() - indices.getRank() + 1)))
    return failure();
  ArrayRef<int64_t> from = updates.getShape();
  if (from.slice(axis, indices.getRank()) != indices.getShape())
    return emitOptionalError(loc, "operand 1 of '", op, "' has shape ", listText(from),
                             ", expected ", listText(indices.getShape()),
                             " from dimension ", axis, " (shape of operand 0)");
  SmallVector<int64_t> shape(from.take_front(axis));
  shape.push_back(size);
  llvm::append_range(shape, from.drop_front(axis + indices.getRank()));
  types.push_back(RankedTensorType::get(shape, updates.getElementType()));
  return success();
}

/// Adds rows of `updates` at the rows that `indices` name, in order.
template <class T, class Add>
static void addRows(const std::vector<T> &updates, ArrayRef<int64_t> indices,
                    const AxisView &view, std::vector<T> &y, Add add) {
  auto from = updates.begin();
  for (int64_t o = 0; o < view.outer; ++o)
    for (int64_t index : indices) {
      const int64_t row = resolve(index, view.size);
      auto to = y.begin() + (o * view.size + row) * view.inner;
      for (int64_t n = 0; row >= 0 && n < view.inner; ++n)
        to[n] = add(to[n], from[n]);
      from += view.inner;
    }
}

LogicalResult ScatterAddOp::evaluate(Evaluation &eval) {
  const HostTensor &updates = eval.operand(1);
  HostTensor &y = eval.result(0);
  if (updates.size() == 0)
    return success();
  AxisView view(y.shape, getAxis());
  ArrayRef<int64_t> indices = eval.operand(0).integers;
  if (y.isReal())
    addRows(updates.reals, indices, view, y.reals,
            [&](double a, double b) { return eval.round(a + b); });
  else
    addRows(updates.integers, indices, view, y.integers,
            [&](int64_t a, int64_t b) { return wrap(addWrap(a, b), y.elementType); });
  return success();
}

LogicalResult ScatterAddOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  GraphBuilder b(getLoc(), builder);
  if (wanted(context, getUpdates(), 1))
    context.set(1, b.make<GatherOp>(context.cotangent(), getIndices(), getAxis()));
  return success();
}

// --- element by element

/// `indices` fits `x`: the same rank, and but for `axis` no dimension larger.
static LogicalResult checkElementIndices(StringRef op, std::optional<Location> loc,
                                         RankedTensorType x, RankedTensorType indices,
                                         int64_t axis) {
  if (failed(checkRange(op, loc, "axis", axis, x.getRank())) ||
      failed(checkIndices(op, loc, indices, 1)))
    return failure();
  bool fits = indices.getRank() == x.getRank();
  for (int64_t i = 0; fits && i < x.getRank(); ++i)
    fits = i == axis || indices.getDimSize(i) <= x.getDimSize(i);
  if (fits)
    return success();
  return emitOptionalError(loc, "operand 1 of '", op, "' has shape ",
                           listText(indices.getShape()), ", expected at most ",
                           listText(x.getShape()),
                           " (shape of operand 0) but in dimension ", axis);
}

/// Calls f(position in indices, element of x) for each index in range.
template <class F>
static void forEachIndexed(const HostTensor &indices, ArrayRef<int64_t> shape,
                           int64_t axis, F f) {
  SmallVector<int64_t> strides = stridesOf(shape);
  const int64_t rowStride = strides[axis];
  strides[axis] = 0;
  int64_t i = 0;
  forEachOffset(indices.shape, strides, 0, [&](int64_t offset) {
    const int64_t row = resolve(indices.integers[i], shape[axis]);
    if (row >= 0)
      f(i, offset + row * rowStride);
    ++i;
  });
}

LogicalResult GatherElementsOp::inferReturnTypes(MLIRContext *,
                                                 std::optional<Location> loc,
                                                 Adaptor adaptor,
                                                 SmallVectorImpl<Type> &types) {
  StringRef op = getOperationName();
  RankedTensorType x = operandType(op, loc, adaptor.getOperands(), 0);
  RankedTensorType indices = operandType(op, loc, adaptor.getOperands(), 1);
  if (!x || !indices ||
      failed(checkElementIndices(op, loc, x, indices, adaptor.getAxis())))
    return failure();
  types.push_back(RankedTensorType::get(indices.getShape(), x.getElementType()));
  return success();
}

LogicalResult GatherElementsOp::evaluate(Evaluation &eval) {
  const HostTensor &x = eval.operand(0);
  HostTensor &y = eval.result(0);
  forEachIndexed(eval.operand(1), x.shape, getAxis(), [&](int64_t i, int64_t from) {
    if (x.isReal())
      y.reals[i] = x.reals[from];
    else
      y.integers[i] = x.integers[from];
  });
  return success();
}

LogicalResult GatherElementsOp::buildGradient(OpBuilder &builder,
                                              GradientContext &context) {
  GraphBuilder b(getLoc(), builder);
  if (wanted(context, getX(), 0))
    context.set(0, b.make<ScatterElementsOp>(b.splatLike(getX(), 0), getIndices(),
                                             context.cotangent(), getAxis(), "add"));
  return success();
}

LogicalResult ScatterElementsOp::inferReturnTypes(MLIRContext *,
                                                  std::optional<Location> loc,
                                                  Adaptor adaptor,
                                                  SmallVectorImpl<Type> &types) {
  StringRef op = getOperationName();
  RankedTensorType x = operandType(op, loc, adaptor.getOperands(), 0);
  RankedTensorType indices = operandType(op, loc, adaptor.getOperands(), 1);
  RankedTensorType updates = operandType(op, loc, adaptor.getOperands(), 2);
  if (!x || !indices || !updates ||
      failed(checkElementIndices(op, loc, x, indices, adaptor.getAxis())))
    return failure();
  RankedTensorType expected =
      RankedTensorType::get(indices.getShape(), x.getElementType());
  if (updates != expected)
    return emitOptionalError(loc, "operand 2 of '", op, "' has type ", updates,
                             ", expected ", expected,
                             " (shape of operand 1, element type of operand 0)");
  static const StringRef known[] = {"none", "add", "mul", "max", "min"};
  if (!llvm::is_contained(known, adaptor.getReduction()))
    return emitOptionalError(loc, "'reduction' of '", op, "' is '",
                             adaptor.getReduction(),
                             "', expected none, add, mul, max or min");
  types.push_back(x);
  return success();
}

namespace {
double keepNan(double a, double b, bool larger) {
  if (std::isnan(a) || std::isnan(b))
    return std::isnan(a) ? a : b;
  return larger ? std::max(a, b) : std::min(a, b);
}
double combineReals(StringRef reduction, double a, double b, const Evaluation &eval) {
  if (reduction == "add")
    return eval.round(a + b);
  if (reduction == "mul")
    return eval.round(a * b);
  return reduction == "none" ? b : keepNan(a, b, reduction == "max");
}
int64_t combineIntegers(StringRef reduction, int64_t a, int64_t b, Type type) {
  if (reduction == "add")
    return wrap(addWrap(a, b), type);
  if (reduction == "mul")
    return wrap(mulWrap(a, b), type);
  return reduction == "none" ? b : reduction == "max" ? std::max(a, b) : std::min(a, b);
}
} // namespace

LogicalResult ScatterElementsOp::evaluate(Evaluation &eval) {
  const HostTensor &x = eval.operand(0), &updates = eval.operand(2);
  HostTensor &y = eval.result(0);
  y.reals = x.reals;
  y.integers = x.integers;
  const StringRef reduction = getReduction();
  forEachIndexed(eval.operand(1), x.shape, getAxis(), [&](int64_t i, int64_t to) {
    if (x.isReal())
      y.reals[to] = combineReals(reduction, y.reals[to], updates.reals[i], eval);
    else
      y.integers[to] =
          combineIntegers(reduction, y.integers[to], updates.integers[i], y.elementType);
  });
  return success();
}

namespace {
/// Builds the cotangents of the operands x and updates of a scatter.
class ScatterGradient {
public:
  ScatterGradient(ScatterElementsOp op, OpBuilder &builder, Value dy)
      : b(op.getLoc(), builder), op(op), x(op.getX()), updates(op.getUpdates()), dy(dy) {}

  /// Elements that were replaced do not depend on x. Of updates to one element each is
  /// given the cotangent, as PyTorch does (the last one wins in the forward direction).
  Value replacedX() { return scatter(dy, b.splatLike(updates, 0), "none"); }
  Value gather(Value from) {
    return b.make<GatherElementsOp>(from, op.getIndices(), op.getAxis());
  }

  /// max and min: an even share to each operand that equals the result.
  std::pair<Value, Value> extremum() {
    Value y = op.getY();
    Value mine = oneWhere(b.compare(x, "eq", y));
    Value theirs = oneWhere(b.compare(updates, "eq", gather(y)));
    Value share = b.div(dy, scatter(mine, theirs, "add"));
    return {b.mul(mine, share), b.mul(theirs, gather(share))};
  }

  /// mul: each operand's cotangent holds the product of all others. Zeros are counted
  /// apart, so that the only zero of a product still gets its own.
  std::pair<Value, Value> product() {
    Value ones = b.splatLike(x, 1), updateOnes = b.splatLike(updates, 1);
    Value xZero = isZero(x), updateZero = isZero(updates);
    Value xSafe = b.select(xZero, ones, x);
    Value updateSafe = b.select(updateZero, updateOnes, updates);
    Value rest = scatter(xSafe, updateSafe, "mul");
    Value zeros = scatter(oneWhere(xZero), oneWhere(updateZero), "add");
    auto part = [&](Value d, Value zeros, Value zero, Value rest, Value safe) {
      Value others = b.sub(zeros, oneWhere(zero));
      return b.select(isZero(others), b.mul(d, b.div(rest, safe)), b.splatLike(d, 0));
    };
    return {part(dy, zeros, xZero, rest, xSafe),
            part(gather(dy), gather(zeros), updateZero, gather(rest), updateSafe)};
  }

private:
  Value scatter(Value into, Value values, StringRef reduction) {
    return b.make<ScatterElementsOp>(into, op.getIndices(), values, op.getAxis(),
                                     reduction);
  }
  Value isZero(Value v) { return b.compare(v, "eq", b.splatLike(v, 0)); }
  Value oneWhere(Value condition) {
    return b.cast(condition, tensorType(dy).getElementType());
  }

  GraphBuilder b;
  ScatterElementsOp op;
  Value x, updates, dy;
};
} // namespace

LogicalResult ScatterElementsOp::buildGradient(OpBuilder &builder,
                                               GradientContext &context) {
  const bool ofX = wanted(context, getX(), 0),
             ofUpdates = wanted(context, getUpdates(), 2);
  if (!ofX && !ofUpdates)
    return success();
  const StringRef reduction = getReduction();
  ScatterGradient gradient(*this, builder, context.cotangent());
  if (reduction == "none" || reduction == "add") {
    if (ofX)
      context.set(0, reduction == "add" ? context.cotangent() : gradient.replacedX());
    if (ofUpdates)
      context.set(2, gradient.gather(context.cotangent()));
    return success();
  }
  auto [dx, du] = reduction == "mul" ? gradient.product() : gradient.extremum();
  if (ofX)
    context.set(0, dx);
  if (ofUpdates)
    context.set(2, du);
  return success();
}

// --- cost: one addition per update

PrecisionKind GatherOp::precision() { return PrecisionKind::Moves; }

double ScatterAddOp::flops() { return tensorType(getUpdates()).getNumElements(); }
double ScatterElementsOp::flops() {
  return getReduction() == "none" ? 0 : tensorType(getUpdates()).getNumElements();
}
