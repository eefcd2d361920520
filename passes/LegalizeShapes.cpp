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
using graph::ConcatOp;
using graph::PadOp;

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

/// pad(a) + pad(b) -> pad(concat(a, b)) when b lies right behind a. The sum of a value
/// and 0 is the value (and of -0 is +0, as everywhere in a gradient).
struct JoinPads : OpRewritePattern<AddOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(AddOp op, PatternRewriter &rewriter) const override {
    auto first = op.getA().getDefiningOp<PadOp>(),
         second = op.getB().getDefiningOp<PadOp>();
    std::optional<int64_t> axis = paddedAxis(first);
    if (!axis || paddedAxis(second) != axis)
      return failure();
    if (first.getLow()[*axis] > second.getLow()[*axis])
      std::swap(first, second);
    int64_t end =
        first.getLow()[*axis] + graph::tensorType(first.getX()).getDimSize(*axis);
    if (end != second.getLow()[*axis])
      return failure();
    Value joined = rewriter.create<ConcatOp>(
        op.getLoc(), ValueRange{first.getX(), second.getX()}, *axis);
    rewriter.replaceOpWithNewOp<PadOp>(op, joined, first.getLow(), second.getHigh(),
                                       first.getValue());
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

} // namespace

void addShapePatterns(RewritePatternSet &patterns) {
  patterns.add<JoinPads, DropEmptyPad, FlattenConcat>(patterns.getContext());
}

} // namespace sluice
