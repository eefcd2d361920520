// The gradient of a slice is a pad, and the uses of a split value are summed up: for a
// split into pieces side by side that is a concatenation, which products can write in
// place.

#include "passes/LegalizePatterns.h"

#include "ir/graph/Graph.h"

#include "mlir/IR/PatternMatch.h"

using namespace mlir;

namespace sluice {
namespace {

using graph::AddOp;
using graph::CastOp;
using graph::ConcatOp;
using graph::PadOp;
using graph::TransposeOp;

/// The one dimension that zeros are added along, or nothing.
std::optional<int64_t> paddedAxis(PadOp pad) {
  if (!pad || !pad->hasOneUse() || pad.getValue().convertToDouble() != 0)
    return std::nullopt;
  std::optional<int64_t> axis;
  for (size_t dim = 0; dim < pad.getLow().size(); ++dim) {
    if (pad.getLow()[dim] == 0 && pad.getHigh()[dim] == 0)
      continue;
    if (axis)
      return std::nullopt;
    axis = dim;
  }
  return axis;
}

Type elementOf(Value value) { return graph::tensorType(value).getElementType(); }

/// Gives the same values in a wider type.
bool isWidening(CastOp cast) {
  auto from = dyn_cast<FloatType>(elementOf(cast.getX())),
       to = dyn_cast<FloatType>(elementOf(cast.getY()));
  return from && to && from.getWidth() < to.getWidth();
}

/// What `value` is, or what it widens and nobody else reads.
PadOp paddedSource(Value value) {
  auto cast = value.getDefiningOp<CastOp>();
  if (cast && cast->hasOneUse() && isWidening(cast))
    value = cast.getX();
  return value.getDefiningOp<PadOp>();
}

/// pad(a) + pad(b) -> pad(concat(a, b)) when b lies right behind a, also where both are
/// stored in 16 bits. The sum of a value and 0 is the value (and of -0 is +0, as
/// everywhere in a gradient).
struct JoinPads : OpRewritePattern<AddOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(AddOp op, PatternRewriter &rewriter) const override {
    PadOp first = paddedSource(op.getA()), second = paddedSource(op.getB());
    std::optional<int64_t> axis = paddedAxis(first);
    if (!axis || paddedAxis(second) != axis ||
        elementOf(first.getX()) != elementOf(second.getX()))
      return failure();
    if (first.getLow()[*axis] > second.getLow()[*axis])
      std::swap(first, second);
    int64_t end =
        first.getLow()[*axis] + graph::tensorType(first.getX()).getDimSize(*axis);
    if (end != second.getLow()[*axis])
      return failure();
    Value joined = rewriter.create<ConcatOp>(
        op.getLoc(), ValueRange{first.getX(), second.getX()}, *axis);
    Value padded = rewriter.create<PadOp>(op.getLoc(), joined, first.getLow(),
                                          second.getHigh(), first.getValue());
    if (padded.getType() == op.getType())
      rewriter.replaceOp(op, padded);
    else
      rewriter.replaceOpWithNewOp<CastOp>(op, padded, elementOf(op.getY()));
    return success();
  }
};

/// A value that is widened and rounded again is what it was.
struct DropRoundTrip : OpRewritePattern<CastOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(CastOp op, PatternRewriter &rewriter) const override {
    auto wide = op.getX().getDefiningOp<CastOp>();
    if (!wide || !isWidening(wide) || wide.getX().getType() != op.getType())
      return failure();
    rewriter.replaceOp(op, wide.getX());
    return success();
  }
};

/// A pad by nothing is its operand.
struct DropEmptyPad : OpRewritePattern<PadOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(PadOp op, PatternRewriter &rewriter) const override {
    if (op.getX().getType() != op.getY().getType())
      return failure();
    rewriter.replaceOp(op, op.getX());
    return success();
  }
};

/// concat(concat(a, b), c) -> concat(a, b, c).
struct FlattenConcat : OpRewritePattern<ConcatOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ConcatOp op, PatternRewriter &rewriter) const override {
    SmallVector<Value> inputs;
    for (Value input : op.getInputs()) {
      auto inner = input.getDefiningOp<ConcatOp>();
      if (inner && inner->hasOneUse() && inner.getAxis() == op.getAxis())
        inputs.append(inner.getInputs().begin(), inner.getInputs().end());
      else
        inputs.push_back(input);
    }
    if (inputs.size() == op.getInputs().size())
      return failure();
    rewriter.replaceOpWithNewOp<ConcatOp>(op, inputs, op.getAxis());
    return success();
  }
};

/// What a product can write anywhere, at any strides.
bool isPlaceable(Value value) {
  while (value.hasOneUse()) {
    Operation *op = value.getDefiningOp();
    if (!op || isa<graph::ContractOp, graph::AttentionGradOp>(op))
      return op;
    if (!isa<graph::ReshapeOp, TransposeOp>(op))
      return false;
    value = op->getOperand(0);
  }
  return false;
}

/// transpose(concat(a, b)) -> concat(transpose(a), transpose(b)): queries, keys and
/// values that are split along a dimension in front get their gradients back there, and
/// attention writes them where they belong.
struct TransposeParts : OpRewritePattern<TransposeOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(TransposeOp op,
                                PatternRewriter &rewriter) const override {
    auto concat = op.getX().getDefiningOp<ConcatOp>();
    if (!concat || !concat->hasOneUse() || !llvm::all_of(concat.getInputs(), isPlaceable))
      return failure();
    SmallVector<Value> parts;
    for (Value input : concat.getInputs())
      parts.push_back(
          rewriter.create<TransposeOp>(op.getLoc(), input, op.getPermutation()));
    const int64_t *axis = llvm::find(op.getPermutation(), int64_t(concat.getAxis()));
    rewriter.replaceOpWithNewOp<ConcatOp>(op, parts, axis - op.getPermutation().begin());
    return success();
  }
};

} // namespace

void addShapePatterns(RewritePatternSet &patterns) {
  patterns.add<JoinPads, DropEmptyPad, DropRoundTrip, FlattenConcat, TransposeParts>(
      patterns.getContext());
}

} // namespace sluice
