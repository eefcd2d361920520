// Gradients of views and rearrangements: each is the adjoint, a rearrangement back.
#include "ir/graph/GraphBuilder.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace sluice::graph;

/// True when the operand wants a cotangent and one exists.
static bool wanted(const GradientContext &context, Value operand, unsigned index) {
  return context.cotangent() && context.needs(index) &&
         isa<FloatType>(tensorType(operand).getElementType());
}

LogicalResult ReshapeOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  GraphBuilder b(getLoc(), builder);
  if (wanted(context, getX(), 0))
    context.set(0, b.reshape(context.cotangent(), tensorType(getX()).getShape()));
  return success();
}

LogicalResult TransposeOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  GraphBuilder b(getLoc(), builder);
  if (!wanted(context, getX(), 0))
    return success();
  SmallVector<int64_t> inverse(getPermutation().size());
  for (auto [i, dimension] : llvm::enumerate(getPermutation()))
    inverse[dimension] = i;
  context.set(0, b.transpose(context.cotangent(), inverse));
  return success();
}

LogicalResult BroadcastOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  GraphBuilder b(getLoc(), builder);
  if (wanted(context, getX(), 0))
    context.set(0, b.sumTo(context.cotangent(), tensorType(getX()).getShape()));
  return success();
}

/// Puts step - 1 zeros after each element of a dimension.
static Value dilate(GraphBuilder &b, Value d, int64_t dimension, int64_t step) {
  SmallVector<int64_t> shape(tensorType(d).getShape());
  SmallVector<int64_t> split(shape);
  split.insert(split.begin() + dimension + 1, 1);
  SmallVector<int64_t> low(split.size(), 0), high(split.size(), 0);
  high[dimension + 1] = step - 1;
  shape[dimension] *= step;
  Value padded = b.make<PadOp>(b.reshape(d, split), low, high, APFloat(0.0));
  return b.reshape(padded, shape);
}

/// Elements go back to where the slice took them from, the others are zero: reverse what
/// was taken backwards, spread the elements to their distance, cut what stands over, pad.
static Value unslice(GraphBuilder &b, Value d, SliceOp op) {
  ArrayRef<int64_t> shape = tensorType(op.getX()).getShape();
  const int64_t rank = shape.size();
  SmallVector<int64_t> sizes(op.getSizes()), first(rank, 0), forward(rank, 1);
  SmallVector<int64_t> low(op.getStarts()), steps(op.getSteps());
  bool reversed = false;
  for (int64_t i = 0; i < rank; ++i) {
    if (steps[i] > 0)
      continue;
    reversed = true;
    first[i] = sizes[i] - 1;
    forward[i] = -1;
    low[i] += (sizes[i] - 1) * steps[i];
    steps[i] = -steps[i];
  }
  if (reversed)
    d = b.make<SliceOp>(d, first, sizes, forward);
  for (int64_t i = 0; i < rank; ++i)
    if (steps[i] > 1 && sizes[i] > 1)
      d = dilate(b, d, i, steps[i]);
  SmallVector<int64_t> spread(tensorType(d).getShape()), kept(spread), high(rank);
  for (int64_t i = 0; i < rank; ++i) {
    kept[i] = std::min(spread[i], shape[i] - low[i]);
    high[i] = shape[i] - low[i] - kept[i];
  }
  if (kept != spread)
    d = b.make<SliceOp>(d, SmallVector<int64_t>(rank, 0), kept,
                        SmallVector<int64_t>(rank, 1));
  return b.make<PadOp>(d, low, high, APFloat(0.0));
}

LogicalResult SliceOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  GraphBuilder b(getLoc(), builder);
  if (!wanted(context, getX(), 0))
    return success();
  if (tensorType(getY()).getNumElements() == 0)
    context.set(0, b.splatLike(getX(), 0));
  else
    context.set(0, unslice(b, context.cotangent(), *this));
  return success();
}

LogicalResult PadOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  GraphBuilder b(getLoc(), builder);
  if (!wanted(context, getX(), 0))
    return success();
  ArrayRef<int64_t> sizes = tensorType(getX()).getShape();
  SmallVector<int64_t> steps(sizes.size(), 1);
  context.set(0, b.make<SliceOp>(context.cotangent(), getLow(), sizes, steps));
  return success();
}

LogicalResult ConcatOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  GraphBuilder b(getLoc(), builder);
  SmallVector<int64_t> starts(tensorType(getY()).getRank(), 0), steps(starts.size(), 1);
  for (auto [i, input] : llvm::enumerate(getInputs())) {
    ArrayRef<int64_t> sizes = tensorType(input).getShape();
    if (wanted(context, input, i))
      context.set(i, b.make<SliceOp>(context.cotangent(), starts, sizes, steps));
    starts[getAxis()] += sizes[getAxis()];
  }
  return success();
}
