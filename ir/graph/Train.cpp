// The cross entropy loss. Random numbers and optimizers have files of their own.

#include "ir/graph/GraphBuilder.h"
#include "ir/graph/Interpreter.h"
#include "ir/graph/Shapes.h"

#include <algorithm>
#include <cmath>

using namespace mlir;

#define GET_OP_CLASSES
#include "ir/graph/Train.cpp.inc"

namespace sluice::graph {

namespace {

/// The parts of a cross entropy that its value and its gradient share; rows are [N], the
/// rest [N, C].
struct CrossEntropyParts {
  Value oneHot; // i1 [N, C]: the label's column
  Value valid;  // i1 [N]: the label is not ignored
  Value weight; // [N]: the label's weight, 0 for ignored rows
  CrossEntropyParts(GraphBuilder &b, CrossEntropyOp op) {
    auto logits = tensorType(op.getLogits());
    ArrayRef<int64_t> shape = logits.getShape();
    Value labels = b.cast(op.getLabels(), b.getI64Type());
    Value columns = b.create<IotaOp>(shape, 1);
    oneHot = b.compare(columns, "eq", b.spread(labels, shape, 1));
    valid = b.compare(labels, "ne", b.splatLike(labels, getIgnoreIndex(op)));
    Value ones = b.splat(RankedTensorType::get(shape[0], logits.getElementType()), 1);
    weight = op.getWeights() ? pick(b, b.broadcast(op.getWeights(), shape)) : ones;
    weight = b.select(valid, weight, b.splatLike(weight, 0));
  }
  /// The element of the label's column, 0 where there is none.
  Value pick(GraphBuilder &b, Value matrix) const {
    return b.sum(b.select(oneHot, matrix, b.splatLike(matrix, 0)), 1, /*keep=*/false);
  }
  static double getIgnoreIndex(CrossEntropyOp op) {
    return static_cast<double>(static_cast<int64_t>(op.getIgnoreIndex()));
  }
};

} // namespace

LogicalResult CrossEntropyOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                               Adaptor adaptor,
                                               SmallVectorImpl<Type> &results) {
  auto logits = cast<RankedTensorType>(adaptor.getLogits().getType());
  if (logits.getRank() != 2)
    return emitOptionalError(loc, "logits of 'cross_entropy' have type ", logits,
                             ", expected rank 2 (rows, classes)");
  if (logits.getDimSize(1) == 0)
    return emitOptionalError(
        loc, "logits of 'cross_entropy' have no classes, expected at least one");
  if (tensorType(adaptor.getLabels()).getShape() != logits.getShape().take_front(1))
    return emitOptionalError(
        loc, "labels of 'cross_entropy' have type ", adaptor.getLabels().getType(),
        ", expected one for each of the ", logits.getDimSize(0), " rows");
  if (adaptor.getWeights() &&
      tensorType(adaptor.getWeights()).getShape() != logits.getShape().drop_front(1))
    return emitOptionalError(
        loc, "weights of 'cross_entropy' have type ", adaptor.getWeights().getType(),
        ", expected one for each of the ", logits.getDimSize(1), " classes");
  results.append(2, RankedTensorType::get({}, logits.getElementType()));
  return success();
}

LogicalResult CrossEntropyOp::evaluate(Evaluation &eval) {
  const HostTensor &logits = eval.operand(0), &labels = eval.operand(1);
  int64_t rows = logits.shape[0], classes = logits.shape[1];
  double smoothing = getSmoothing().convertToDouble(), loss = 0, count = 0;
  auto weightOf = [&](int64_t c) {
    return getWeights() ? eval.operand(2).reals[c] : 1.0;
  };
  for (int64_t row = 0; row < rows; ++row) {
    int64_t label = labels.integers[row];
    if (label == static_cast<int64_t>(getIgnoreIndex()))
      continue;
    if (label < 0 || label >= classes)
      return emitOpError() << "has the label " << label << " in row " << row
                           << ", expected one of " << classes << " classes";
    const double *x = logits.reals.data() + row * classes;
    double largest = *std::max_element(x, x + classes), sum = 0, smooth = 0;
    for (int64_t c = 0; c < classes; ++c)
      sum += std::exp(x[c] - largest);
    double logSum = largest + std::log(sum);
    for (int64_t c = 0; c < classes && smoothing != 0; ++c)
      smooth += weightOf(c) * (logSum - x[c]);
    loss += (1 - smoothing) * weightOf(label) * (logSum - x[label]) +
            smoothing / classes * smooth;
    count += weightOf(label);
  }
  eval.result(0).reals[0] = eval.round(loss);
  eval.result(1).reals[0] = eval.round(count);
  return success();
}

SmallVector<Value> CrossEntropyOp::decompose(OpBuilder &builder) {
  GraphBuilder b(getLoc(), builder);
  Value logits = getLogits();
  double smoothing = getSmoothing().convertToDouble();
  int64_t classes = tensorType(logits).getDimSize(1);
  CrossEntropyParts parts(b, *this);
  Value largest = b.reduce(logits, "max", 1, /*keep=*/true);
  Value shifted = b.sub(logits, b.broadcastLike(largest, logits));
  Value logSum = b.make<LogOp>(b.sum(b.make<ExpOp>(shifted), 1, /*keep=*/false));
  Value row = b.mul(parts.weight, b.sub(logSum, parts.pick(b, shifted)));
  // An ignored row counts for nothing even where its logits are not finite.
  row = b.select(parts.valid, row, b.splatLike(row, 0));
  if (smoothing != 0) {
    Value surprise = b.sub(b.spread(logSum, tensorType(logits).getShape(), 1), shifted);
    if (getWeights())
      surprise = b.mul(surprise, b.broadcastLike(getWeights(), surprise));
    Value smooth = b.sum(surprise, 1, /*keep=*/false);
    smooth = b.select(parts.valid, smooth, b.splatLike(smooth, 0));
    row = b.add(b.scale(row, 1 - smoothing), b.scale(smooth, smoothing / classes));
  }
  return {b.sumAll(row), b.sumAll(parts.weight)};
}

/// d loss / d weights = sum over rows of ((1 - s) * oneHot + s / C) * -log softmax; d
/// count / d weights = sum of oneHot.
static Value weightGradient(GraphBuilder &b, CrossEntropyOp op, Value dloss,
                            Value dcount) {
  CrossEntropyParts parts(b, op);
  Value logits = op.getLogits(), zero = b.splatLike(logits, 0), dw;
  Value valid = b.spread(parts.valid, tensorType(logits).getShape(), 1);
  double smoothing = op.getSmoothing().convertToDouble();
  if (dloss) {
    Value surprise = b.neg(b.make<LogSoftmaxOp>(logits, 1));
    Value picked = b.scale(b.select(parts.oneHot, surprise, zero), 1 - smoothing);
    Value each =
        b.add(picked, b.scale(surprise, smoothing / tensorType(logits).getDimSize(1)));
    dw = b.sum(b.select(valid, each, zero), 0, /*keep=*/false);
    dw = b.mul(dw, b.broadcastLike(dloss, dw));
  }
  if (dcount) {
    Value hot =
        b.select(b.make<AndOp>(parts.oneHot, valid), b.splatLike(logits, 1), zero);
    Value count = b.sum(hot, 0, /*keep=*/false);
    count = b.mul(count, b.broadcastLike(dcount, count));
    dw = dw ? b.add(dw, count) : count;
  }
  return dw;
}

// d loss / d logits = (1 - s) * weight * (p - oneHot) + s / C * (W * p - weights), on
// rows that are not ignored, where p is the softmax and W the sum of all weights.
LogicalResult CrossEntropyOp::buildGradient(OpBuilder &builder,
                                            GradientContext &context) {
  Value dloss = context.cotangent(0);
  GraphBuilder b(getLoc(), builder);
  if (getWeights() && context.needs(2))
    context.set(2, weightGradient(b, *this, dloss, context.cotangent(1)));
  if (!dloss || !context.needs(0))
    return success();
  ArrayRef<int64_t> shape = tensorType(getLogits()).getShape();
  double smoothing = getSmoothing().convertToDouble();
  CrossEntropyParts parts(b, *this);
  Value p = b.make<SoftmaxOp>(getLogits(), 1);
  Value hot = b.select(parts.oneHot, b.splatLike(p, 1), b.splatLike(p, 0));
  Value factor =
      b.mul(b.scale(parts.weight, 1 - smoothing), b.broadcastLike(dloss, parts.weight));
  Value dx = b.mul(b.sub(p, hot), b.spread(factor, shape, 1));
  if (smoothing != 0) {
    Value share = b.scale(b.broadcastLike(dloss, parts.weight), smoothing / shape[1]);
    Value pull;
    if (getWeights()) {
      Value total = b.broadcastLike(b.sumAll(getWeights()), p);
      pull = b.sub(b.mul(p, total), b.broadcastLike(getWeights(), p));
    } else {
      pull = b.shift(b.scale(p, shape[1]), -1);
    }
    dx = b.add(dx, b.mul(pull, b.spread(share, shape, 1)));
  }
  Value valid = b.spread(parts.valid, shape, 1);
  context.set(0, b.select(valid, dx, b.splatLike(dx, 0)));
  return success();
}

} // namespace sluice::graph
