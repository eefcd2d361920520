// Normalisations over the trailing dimensions: layer_norm and rms_norm.

#include "ir/graph/GraphBuilder.h"
#include "ir/graph/Interpreter.h"
#include "ir/graph/Shapes.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace mlir;

namespace sluice::graph {

namespace {

/// Checks scale (and bias) against x.shape[axis:] and adds the types of y and of
/// `statistics` reduced results.
LogicalResult inferNorm(std::optional<Location> loc, ValueRange operands, int64_t axis,
                        int statistics, StringRef name, SmallVectorImpl<Type> &results) {
  auto x = cast<RankedTensorType>(operands[0].getType());
  if (failed(checkRange(name, loc, "axis", axis, x.getRank())))
    return failure();
  for (Value operand : operands.drop_front())
    if (operand && tensorType(operand).getShape() != x.getShape().drop_front(axis))
      return emitOptionalError(loc, "scale or bias of '", name, "' has type ",
                               operand.getType(), ", expected the dimensions of ", x,
                               " from ", axis);
  SmallVector<int64_t> reduced(x.getShape());
  std::fill(reduced.begin() + axis, reduced.end(), 1);
  results.push_back(x);
  results.append(statistics, RankedTensorType::get(reduced, x.getElementType()));
  return success();
}

/// What both operations share: the dimensions that are normalised (inner) and the others.
struct NormAxes {
  SmallVector<int64_t> outer, inner;
  int64_t count = 1; // elements normalised together
  NormAxes(Value x, int64_t axis) : outer(axis), inner(tensorType(x).getRank() - axis) {
    std::iota(outer.begin(), outer.end(), 0);
    std::iota(inner.begin(), inner.end(), axis);
    for (int64_t d : inner)
      count *= tensorType(x).getDimSize(d);
    count = std::max<int64_t>(count, 1);
  }
  Value mean(GraphBuilder &b, Value x) const {
    return b.scale(b.sum(x, inner, true), 1.0 / count);
  }
};

/// rstd * (g - [mean g] - xhat * mean(g * xhat)): the cotangent of x from `g`, that of
/// the normalised value.
Value inputGradient(GraphBuilder &b, const NormAxes &axes, Value g, Value xhat,
                    Value rstd, bool centred) {
  Value projected = b.mul(xhat, b.broadcastLike(axes.mean(b, b.mul(g, xhat)), xhat));
  Value residual = centred ? b.sub(g, b.broadcastLike(axes.mean(b, g), g)) : g;
  return b.mul(b.broadcastLike(rstd, g), b.sub(residual, projected));
}

/// The part of the cotangent of x that comes from `drstd`: d rstd / dx = -rstd^2 * xhat /
/// count.
Value rstdGradient(GraphBuilder &b, const NormAxes &axes, Value drstd, Value xhat,
                   Value rstd) {
  Value factor = b.scale(b.mul(drstd, b.mul(rstd, rstd)), -1.0 / axes.count);
  return b.mul(b.broadcastLike(factor, xhat), xhat);
}

Value sumOrFirst(GraphBuilder &b, Value a, Value more) {
  return a ? b.add(a, more) : more;
}

} // namespace

LogicalResult LayerNormOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                            Adaptor adaptor,
                                            SmallVectorImpl<Type> &results) {
  return inferNorm(loc, adaptor.getOperands(), adaptor.getAxis(), 2, "layer_norm",
                   results);
}

LogicalResult LayerNormOp::evaluate(Evaluation &eval) {
  const HostTensor &x = eval.operand(0), &scale = eval.operand(1);
  int64_t n = product(ArrayRef<int64_t>(x.shape).drop_front(getAxis())),
          rows = eval.result(1).size();
  for (int64_t row = 0; row < rows; ++row) {
    const double *line = x.reals.data() + row * n;
    double mean = std::accumulate(line, line + n, 0.0) / std::max<int64_t>(n, 1),
           squares = 0;
    for (int64_t j = 0; j < n; ++j)
      squares += (line[j] - mean) * (line[j] - mean);
    double epsilon = getEpsilon().convertToDouble();
    double rstd = 1 / std::sqrt(squares / std::max<int64_t>(n, 1) + epsilon);
    for (int64_t j = 0; j < n; ++j) {
      double y = (line[j] - mean) * rstd * scale.reals[j];
      eval.result(0).reals[row * n + j] =
          eval.round(getBias() ? y + eval.operand(2).reals[j] : y);
    }
    eval.result(1).reals[row] = eval.round(mean);
    eval.result(2).reals[row] = eval.round(rstd);
  }
  return success();
}

SmallVector<Value> LayerNormOp::decompose(OpBuilder &builder) {
  GraphBuilder b(getLoc(), builder);
  NormAxes axes(getX(), getAxis());
  Value x = getX(), mean = axes.mean(b, x);
  Value centred = b.sub(x, b.broadcastLike(mean, x));
  Value variance = axes.mean(b, b.mul(centred, centred));
  Value rstd = b.make<RsqrtOp>(b.shift(variance, getEpsilon().convertToDouble()));
  Value y =
      b.mul(b.mul(centred, b.broadcastLike(rstd, x)), b.broadcastLike(getScale(), x));
  if (getBias())
    y = b.add(y, b.broadcastLike(getBias(), x));
  return {y, mean, rstd};
}

LogicalResult LayerNormOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  GraphBuilder b(getLoc(), builder);
  NormAxes axes(getX(), getAxis());
  Value x = getX(), rstd = getRstd(), dy = context.cotangent(0), dx;
  Value xhat = b.mul(b.sub(x, b.broadcastLike(getMean(), x)), b.broadcastLike(rstd, x));
  if (dy && context.needs(1))
    context.set(1, b.sum(b.mul(dy, xhat), axes.outer, /*keep=*/false));
  if (dy && getBias() && context.needs(2))
    context.set(2, b.sum(dy, axes.outer, /*keep=*/false));
  if (!context.needs(0))
    return success();
  if (dy)
    dx = inputGradient(b, axes, b.mul(dy, b.broadcastLike(getScale(), dy)), xhat, rstd,
                       true);
  if (Value dmean = context.cotangent(1))
    dx = sumOrFirst(b, dx, b.broadcastLike(b.scale(dmean, 1.0 / axes.count), x));
  if (Value drstd = context.cotangent(2))
    dx = sumOrFirst(b, dx, rstdGradient(b, axes, drstd, xhat, rstd));
  context.set(0, dx);
  return success();
}

LogicalResult RmsNormOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                          Adaptor adaptor,
                                          SmallVectorImpl<Type> &results) {
  return inferNorm(loc, adaptor.getOperands(), adaptor.getAxis(), 1, "rms_norm", results);
}

LogicalResult RmsNormOp::evaluate(Evaluation &eval) {
  const HostTensor &x = eval.operand(0), &scale = eval.operand(1);
  int64_t n = product(ArrayRef<int64_t>(x.shape).drop_front(getAxis())),
          rows = eval.result(1).size();
  for (int64_t row = 0; row < rows; ++row) {
    const double *line = x.reals.data() + row * n;
    double squares =
        std::inner_product(line, line + n, line, 0.0) / std::max<int64_t>(n, 1);
    double rstd = 1 / std::sqrt(squares + getEpsilon().convertToDouble());
    for (int64_t j = 0; j < n; ++j)
      eval.result(0).reals[row * n + j] = eval.round(line[j] * rstd * scale.reals[j]);
    eval.result(1).reals[row] = eval.round(rstd);
  }
  return success();
}

SmallVector<Value> RmsNormOp::decompose(OpBuilder &builder) {
  GraphBuilder b(getLoc(), builder);
  NormAxes axes(getX(), getAxis());
  Value x = getX(), square = axes.mean(b, b.mul(x, x));
  Value rstd = b.make<RsqrtOp>(b.shift(square, getEpsilon().convertToDouble()));
  Value xhat = b.mul(x, b.broadcastLike(rstd, x));
  return {b.mul(xhat, b.broadcastLike(getScale(), x)), rstd};
}

LogicalResult RmsNormOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  GraphBuilder b(getLoc(), builder);
  NormAxes axes(getX(), getAxis());
  Value rstd = getRstd(), dy = context.cotangent(0), dx;
  Value xhat = b.mul(getX(), b.broadcastLike(rstd, getX()));
  if (dy && context.needs(1))
    context.set(1, b.sum(b.mul(dy, xhat), axes.outer, /*keep=*/false));
  if (!context.needs(0))
    return success();
  if (dy)
    dx = inputGradient(b, axes, b.mul(dy, b.broadcastLike(getScale(), dy)), xhat, rstd,
                       false);
  if (Value drstd = context.cotangent(1))
    dx = sumOrFirst(b, dx, rstdGradient(b, axes, drstd, xhat, rstd));
  context.set(0, dx);
  return success();
}

} // namespace sluice::graph
