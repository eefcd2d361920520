// Softmax and log softmax. The layer and batch normalisations have files of their own.

#include "ir/graph/GraphBuilder.h"
#include "ir/graph/Interpreter.h"
#include "ir/graph/Shapes.h"

#include <cmath>
#include <limits>

using namespace mlir;

#define GET_OP_CLASSES
#include "ir/graph/Normalize.cpp.inc"

namespace sluice::graph {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

LogicalResult inferAlongAxis(std::optional<Location> loc, Type type, int64_t axis,
                             StringRef name, SmallVectorImpl<Type> &results) {
  auto x = cast<RankedTensorType>(type);
  if (failed(checkRange(name, loc, "axis", axis, x.getRank())))
    return failure();
  results.push_back(x);
  return success();
}

/// The lines along one axis of a row-major tensor.
struct Lines : AxisView {
  Lines(const HostTensor &x, int64_t axis) : AxisView(x.shape, axis) {}
  int64_t index(int64_t line, int64_t j) const {
    return (line / inner * size + j) * inner + line % inner;
  }
  int64_t count() const { return outer * inner; }
};

/// The largest element of a line (NaN kept) and the sum of e^(x - largest).
std::pair<double, double> maximumAndSum(const HostTensor &x, const Lines &lines,
                                        int64_t line) {
  double largest = -infinity, sum = 0;
  for (int64_t j = 0; j < lines.size; ++j) {
    double value = x.reals[lines.index(line, j)];
    if (value > largest || std::isnan(value))
      largest = value;
    if (std::isnan(largest))
      break;
  }
  for (int64_t j = 0; j < lines.size; ++j)
    sum += std::exp(x.reals[lines.index(line, j)] - largest);
  return {largest, sum};
}

/// Each element from itself and from the two figures of its line.
void evaluateLines(Evaluation &eval, int64_t axis,
                   function_ref<double(double, double, double)> element) {
  const HostTensor &x = eval.operand(0);
  Lines lines(x, axis);
  for (int64_t line = 0; line < lines.count(); ++line) {
    auto [largest, sum] = maximumAndSum(x, lines, line);
    for (int64_t j = 0; j < lines.size; ++j) {
      int64_t at = lines.index(line, j);
      eval.result(0).reals[at] = eval.round(element(x.reals[at], largest, sum));
    }
  }
}

} // namespace

LogicalResult SoftmaxOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                          Adaptor adaptor,
                                          SmallVectorImpl<Type> &results) {
  return inferAlongAxis(loc, adaptor.getX().getType(), adaptor.getAxis(), "softmax",
                        results);
}

LogicalResult SoftmaxOp::evaluate(Evaluation &eval) {
  evaluateLines(eval, getAxis(), [](double x, double largest, double sum) {
    return largest == -infinity ? 0 : std::exp(x - largest) / sum;
  });
  return success();
}

SmallVector<Value> SoftmaxOp::decompose(OpBuilder &builder) {
  GraphBuilder b(getLoc(), builder);
  int64_t axis = getAxis();
  Value largest = b.reduce(getX(), "max", axis, /*keep=*/true);
  // A row that is -inf throughout has the sum 0 and must not become NaN.
  Value masked = b.compare(largest, "eq", b.splatLike(largest, -infinity));
  Value base = b.select(masked, b.splatLike(largest, 0), largest);
  Value e = b.make<ExpOp>(b.sub(getX(), b.broadcastLike(base, getX())));
  Value sum = b.sum(e, axis, /*keep=*/true);
  Value one = b.splatLike(sum, 1);
  Value inverse = b.div(one, b.select(masked, one, sum));
  return {b.mul(e, b.broadcastLike(inverse, e))};
}

LogicalResult SoftmaxOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  GraphBuilder b(getLoc(), builder);
  Value y = getY(), dy = context.cotangent();
  Value dot = b.sum(b.mul(dy, y), static_cast<int64_t>(getAxis()), /*keep=*/true);
  context.set(0, b.mul(y, b.sub(dy, b.broadcastLike(dot, y))));
  return success();
}

LogicalResult LogSoftmaxOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                             Adaptor adaptor,
                                             SmallVectorImpl<Type> &results) {
  return inferAlongAxis(loc, adaptor.getX().getType(), adaptor.getAxis(), "log_softmax",
                        results);
}

LogicalResult LogSoftmaxOp::evaluate(Evaluation &eval) {
  evaluateLines(eval, getAxis(), [](double x, double largest, double sum) {
    return x - largest - std::log(sum);
  });
  return success();
}

SmallVector<Value> LogSoftmaxOp::decompose(OpBuilder &builder) {
  GraphBuilder b(getLoc(), builder);
  int64_t axis = getAxis();
  Value largest = b.reduce(getX(), "max", axis, /*keep=*/true);
  Value shifted = b.sub(getX(), b.broadcastLike(largest, getX()));
  Value logSum = b.make<LogOp>(b.sum(b.make<ExpOp>(shifted), axis, /*keep=*/true));
  return {b.sub(shifted, b.broadcastLike(logSum, shifted))};
}

LogicalResult LogSoftmaxOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  GraphBuilder b(getLoc(), builder);
  Value dy = context.cotangent();
  Value sum = b.sum(dy, static_cast<int64_t>(getAxis()), /*keep=*/true);
  context.set(0, b.sub(dy, b.mul(b.make<ExpOp>(getY()), b.broadcastLike(sum, dy))));
  return success();
}

} // namespace sluice::graph
