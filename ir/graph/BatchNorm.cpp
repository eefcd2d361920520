// Normalisation of dimension 1, with given statistics and with those of the batch.

#include "ir/graph/GraphBuilder.h"
#include "ir/graph/Interpreter.h"

#include <algorithm>
#include <cmath>

using namespace mlir;

namespace sluice::graph {

namespace {

LogicalResult checkChannels(std::optional<Location> loc, ValueRange operands,
                            StringRef name) {
  auto x = cast<RankedTensorType>(operands[0].getType());
  if (x.getRank() < 2)
    return emitOptionalError(loc, "operand of '", name, "' has type ", x,
                             ", expected a batch and a channel dimension");
  for (Value operand : operands.drop_front())
    if (tensorType(operand).getShape() != ArrayRef<int64_t>{x.getDimSize(1)})
      return emitOptionalError(loc, "operand of '", name, "' has type ",
                               operand.getType(), ", expected ", x.getDimSize(1),
                               " channels of ", x);
  return success();
}

/// All dimensions but the channels, and how many elements a channel has.
struct Channels {
  SmallVector<int64_t> axes;
  int64_t count = 1;
  explicit Channels(Value x) {
    for (int64_t d = 0; d < tensorType(x).getRank(); ++d)
      if (d != 1) {
        axes.push_back(d);
        count *= tensorType(x).getDimSize(d);
      }
    count = std::max<int64_t>(count, 1);
  }
  Value sum(GraphBuilder &b, Value x) const { return b.sum(x, axes, /*keep=*/false); }
  Value mean(GraphBuilder &b, Value x) const { return b.scale(sum(b, x), 1.0 / count); }
};

Value perChannel(GraphBuilder &b, Value vector, Value like) {
  return b.spread(vector, tensorType(like).getShape(), Channels(like).axes);
}

/// Calls `visit(channel, element index)` in row-major order.
template <typename Visit> void forEachElement(const HostTensor &x, Visit visit) {
  int64_t channels = x.shape[1], inner = 1;
  for (size_t d = 2; d < x.shape.size(); ++d)
    inner *= x.shape[d];
  for (int64_t at = 0, size = x.size(); at < size; ++at)
    visit(at / inner % channels, at);
}

void normalize(Evaluation &eval, const HostTensor &mean, const HostTensor &variance,
               double epsilon) {
  const HostTensor &x = eval.operand(0);
  forEachElement(x, [&](int64_t c, int64_t at) {
    double xhat = (x.reals[at] - mean.reals[c]) / std::sqrt(variance.reals[c] + epsilon);
    double y = xhat * eval.operand(1).reals[c] + eval.operand(2).reals[c];
    eval.result(0).reals[at] = eval.round(y);
  });
}

} // namespace

LogicalResult BatchNormOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                            Adaptor adaptor,
                                            SmallVectorImpl<Type> &results) {
  results.push_back(adaptor.getX().getType());
  return checkChannels(loc, adaptor.getOperands(), "batch_norm");
}

LogicalResult BatchNormOp::evaluate(Evaluation &eval) {
  normalize(eval, eval.operand(3), eval.operand(4), getEpsilon().convertToDouble());
  return success();
}

SmallVector<Value> BatchNormOp::decompose(OpBuilder &builder) {
  GraphBuilder b(getLoc(), builder);
  // One multiplication and one addition per element; the rest is per channel.
  Value rstd = b.make<RsqrtOp>(b.shift(getVariance(), getEpsilon().convertToDouble()));
  Value slope = b.mul(getScale(), rstd);
  Value offset = b.sub(getBias(), b.mul(getMean(), slope));
  Value x = getX();
  return {b.add(b.mul(x, perChannel(b, slope, x)), perChannel(b, offset, x))};
}

LogicalResult BatchNormOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  GraphBuilder b(getLoc(), builder);
  Value x = getX(), dy = context.cotangent();
  Channels channels(x);
  Value rstd = b.make<RsqrtOp>(b.shift(getVariance(), getEpsilon().convertToDouble()));
  Value slope = b.mul(getScale(), rstd);
  if (context.needs(0))
    context.set(0, b.mul(dy, perChannel(b, slope, dy)));
  if (context.needs(2))
    context.set(2, channels.sum(b, dy));
  if (context.needs(3))
    context.set(3, b.neg(b.mul(slope, channels.sum(b, dy))));
  if (!context.needs(1) && !context.needs(4))
    return success();
  Value centred = b.sub(x, perChannel(b, getMean(), x));
  Value dscale = b.mul(channels.sum(b, b.mul(dy, centred)), rstd);
  if (context.needs(1))
    context.set(1, dscale);
  if (context.needs(4)) // d rstd / d variance = -rstd^3 / 2
    context.set(4, b.scale(b.mul(b.mul(dscale, slope), rstd), -0.5));
  return success();
}

LogicalResult BatchNormTrainOp::inferReturnTypes(MLIRContext *,
                                                 std::optional<Location> loc,
                                                 Adaptor adaptor,
                                                 SmallVectorImpl<Type> &results) {
  if (failed(checkChannels(loc, adaptor.getOperands(), "batch_norm_train")))
    return failure();
  auto x = cast<RankedTensorType>(adaptor.getX().getType());
  results.push_back(x);
  results.append(2, RankedTensorType::get(x.getDimSize(1), x.getElementType()));
  return success();
}

LogicalResult BatchNormTrainOp::evaluate(Evaluation &eval) {
  const HostTensor &x = eval.operand(0);
  HostTensor mean = eval.result(1), variance = eval.result(2);
  double count = std::max<double>(1, static_cast<double>(x.size()) /
                                         std::max<int64_t>(1, x.shape[1]));
  forEachElement(x, [&](int64_t c, int64_t at) { mean.reals[c] += x.reals[at] / count; });
  forEachElement(x, [&](int64_t c, int64_t at) {
    double centred = x.reals[at] - mean.reals[c];
    variance.reals[c] += centred * centred / count;
  });
  normalize(eval, mean, variance, getEpsilon().convertToDouble());
  for (size_t c = 0; c < mean.reals.size(); ++c) {
    eval.result(1).reals[c] = eval.round(mean.reals[c]);
    eval.result(2).reals[c] = eval.round(variance.reals[c]);
  }
  return success();
}

SmallVector<Value> BatchNormTrainOp::decompose(OpBuilder &builder) {
  GraphBuilder b(getLoc(), builder);
  Value x = getX();
  Channels channels(x);
  Value mean = channels.mean(b, x);
  Value centred = b.sub(x, perChannel(b, mean, x));
  Value variance = channels.mean(b, b.mul(centred, centred));
  Value rstd = b.make<RsqrtOp>(b.shift(variance, getEpsilon().convertToDouble()));
  Value y = b.mul(centred, perChannel(b, b.mul(getScale(), rstd), x));
  return {b.add(y, perChannel(b, getBias(), x)), mean, variance};
}

LogicalResult BatchNormTrainOp::buildGradient(OpBuilder &builder,
                                              GradientContext &context) {
  GraphBuilder b(getLoc(), builder);
  Value x = getX(), dy = context.cotangent(0), dx;
  Channels channels(x);
  double share = 1.0 / channels.count;
  Value centred = b.sub(x, perChannel(b, getMean(), x));
  if (dy) {
    Value rstd = b.make<RsqrtOp>(b.shift(getVariance(), getEpsilon().convertToDouble()));
    Value xhat = b.mul(centred, perChannel(b, rstd, x));
    Value dbias = channels.sum(b, dy), dscale = channels.sum(b, b.mul(dy, xhat));
    context.set(1, dscale);
    context.set(2, dbias);
    // scale * rstd * (dy - mean(dy) - xhat * mean(dy * xhat)): the means are those sums
    // over the count.
    Value residual = b.sub(dy, perChannel(b, b.scale(dbias, share), dy));
    residual = b.sub(residual, b.mul(xhat, perChannel(b, b.scale(dscale, share), dy)));
    dx = b.mul(residual, perChannel(b, b.mul(getScale(), rstd), dy));
  }
  if (Value dmean = context.cotangent(1)) {
    Value part = perChannel(b, b.scale(dmean, share), x);
    dx = dx ? b.add(dx, part) : part;
  }
  if (Value dvariance = context.cotangent(2)) {
    Value part = b.mul(centred, perChannel(b, b.scale(dvariance, 2 * share), x));
    dx = dx ? b.add(dx, part) : part;
  }
  context.set(0, dx);
  return success();
}

SmallVector<Value> BatchNormTrainOp::evaluationForm(OpBuilder &builder) {
  if (!getRunningMeanAttr() || !getRunningVarianceAttr())
    return {getY(), getMean(),
            getVariance()}; // no statistics are kept: those of the batch serve
  Value mean =
      builder.create<ReadOp>(getLoc(), getMean().getType(), getRunningMeanAttr());
  Value variance =
      builder.create<ReadOp>(getLoc(), getVariance().getType(), getRunningVarianceAttr());
  Value y = builder.create<BatchNormOp>(getLoc(), getX(), getScale(), getBias(), mean,
                                        variance, getEpsilonAttr());
  return {y, mean, variance};
}

void BatchNormTrainOp::recordStatistics(OpBuilder &builder) {
  GraphBuilder b(getLoc(), builder);
  double momentum = getMomentum().convertToDouble();
  auto record = [&](FlatSymbolRefAttr symbol, Value batch) {
    if (!symbol)
      return;
    Value running = builder.create<ReadOp>(getLoc(), batch.getType(), symbol);
    Value updated = b.add(b.scale(running, momentum), b.scale(batch, 1 - momentum));
    builder.create<WriteOp>(getLoc(), symbol, updated);
  };
  record(getRunningMeanAttr(), getMean());
  record(getRunningVarianceAttr(), getVariance());
}

} // namespace sluice::graph
