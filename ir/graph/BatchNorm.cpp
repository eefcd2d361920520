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
  if (failed(checkChannels(loc, {adaptor.getX(), adaptor.getScale(), adaptor.getBias()},
                           "batch_norm_train")))
    return failure();
  auto x = cast<RankedTensorType>(adaptor.getX().getType());
  results.push_back(x);
  results.append(2, RankedTensorType::get(x.getDimSize(1), x.getElementType()));
  return success();
}

LogicalResult BatchNormTrainOp::evaluate(Evaluation &eval) {
  const HostTensor &x = eval.operand(0);
  HostTensor mean = eval.result(1), variance = eval.result(2);
  const int64_t rows = std::max<int64_t>(1, x.shape[0]), rowSize = x.size() / rows;
  const int64_t valid = getValid() ? eval.operand(3).integers[0] : rows;
  const int64_t counted = valid * rowSize, channels = std::max<int64_t>(1, x.shape[1]);
  const double count = std::max<double>(1, static_cast<double>(counted) / channels);
  forEachElement(x, [&](int64_t c, int64_t at) {
    mean.reals[c] += at < counted ? x.reals[at] / count : 0;
  });
  forEachElement(x, [&](int64_t c, int64_t at) {
    double centred = at < counted ? x.reals[at] - mean.reals[c] : 0;
    variance.reals[c] += centred * centred / count;
  });
  normalize(eval, mean, variance, getEpsilon().convertToDouble());
  for (int64_t at = counted; at < x.size(); ++at)
    eval.result(0).reals[at] = 0;
  for (size_t c = 0; c < mean.reals.size(); ++c) {
    eval.result(1).reals[c] = eval.round(mean.reals[c]);
    eval.result(2).reals[c] = eval.round(variance.reals[c]);
  }
  return success();
}

namespace {

/// The elements of a batch that count, and the reciprocal of their number per channel.
class CountedRows {
public:
  CountedRows(GraphBuilder &b, BatchNormTrainOp op)
      : b(b), x(op.getX()), valid(op.getValid()), channels(x) {
    if (!valid)
      return;
    const int64_t rows = tensorType(x).getDimSize(0);
    Value inside = b.compare(b.make<IotaOp>(ArrayRef<int64_t>(rows), 0), "lt",
                             b.broadcast(valid, rows));
    SmallVector<int64_t> others;
    for (int64_t d = 1; d < tensorType(x).getRank(); ++d)
      others.push_back(d);
    mask = b.spread(inside, tensorType(x).getShape(), others);
    Type element = tensorType(x).getElementType();
    Value count = b.scale(b.cast(valid, element), static_cast<double>(channels.count) /
                                                      std::max<int64_t>(1, rows));
    Value one = b.splatLike(count, 1);
    share = b.div(one, b.make<MaxOp>(count, one));
  }
  /// 0 on padding.
  Value keep(Value y) { return valid ? b.select(mask, y, b.splatLike(y, 0)) : y; }
  Value sum(Value y) { return channels.sum(b, y); }
  /// Per channel or not: divided by the number of elements a channel has.
  Value divide(Value y, double factor = 1) {
    if (!valid)
      return b.scale(y, factor / channels.count);
    return b.scale(b.mul(y, b.broadcastLike(share, y)), factor);
  }
  Value spread(Value vector) { return perChannel(b, vector, x); }

private:
  GraphBuilder &b;
  Value x, valid, mask, share;
  Channels channels;
};

} // namespace

SmallVector<Value> BatchNormTrainOp::decompose(OpBuilder &builder) {
  GraphBuilder b(getLoc(), builder);
  CountedRows rows(b, *this);
  Value x = getX();
  Value mean = rows.divide(rows.sum(rows.keep(x)));
  Value centred = rows.keep(b.sub(x, rows.spread(mean)));
  Value variance = rows.divide(rows.sum(b.square(centred)));
  Value rstd = b.rsqrt(b.shift(variance, getEpsilon().convertToDouble()));
  Value y = b.mul(centred, rows.spread(b.mul(getScale(), rstd)));
  return {rows.keep(b.add(y, rows.spread(getBias()))), mean, variance};
}

LogicalResult BatchNormTrainOp::buildGradient(OpBuilder &builder,
                                              GradientContext &context) {
  GraphBuilder b(getLoc(), builder);
  CountedRows rows(b, *this);
  Value dx, centred = rows.keep(b.sub(getX(), rows.spread(getMean())));
  auto addTo = [&](Value part) { dx = dx ? b.add(dx, part) : part; };
  if (Value dy = context.cotangent(0)) {
    dy = rows.keep(dy);
    Value rstd = b.rsqrt(b.shift(getVariance(), getEpsilon().convertToDouble()));
    Value xhat = b.mul(centred, rows.spread(rstd));
    Value dbias = rows.sum(dy), dscale = rows.sum(b.mul(dy, xhat));
    context.set(1, dscale);
    context.set(2, dbias);
    // scale * rstd * (dy - mean(dy) - xhat * mean(dy * xhat)): the means are those sums
    // over the count.
    Value residual = b.sub(dy, rows.spread(rows.divide(dbias)));
    residual = b.sub(residual, b.mul(xhat, rows.spread(rows.divide(dscale))));
    addTo(b.mul(residual, rows.spread(b.mul(getScale(), rstd))));
  }
  if (Value dmean = context.cotangent(1))
    addTo(rows.spread(rows.divide(dmean)));
  if (Value dvariance = context.cotangent(2))
    addTo(b.mul(centred, rows.spread(rows.divide(dvariance, 2))));
  context.set(0, rows.keep(dx));
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
