// LegalizeForKernels: brings products and reductions into forms that a kernel exists for.
// Transposes disappear into the dimension numbers of products, or are added where a
// product or reduction cannot do without. Large reductions to few values are cut in two,
// by their shape alone, so that all workers have a share. What is rewritten decides bits,
// so it never depends on what is fused later.

#include "passes/ContractShape.h"
#include "passes/LegalizePatterns.h"
#include "passes/Passes.h"
#include "passes/RegionDomain.h"

#include "ir/graph/GraphBuilder.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_LEGALIZEFORKERNELS
#include "passes/Passes.h.inc"
namespace {

using graph::ContractOp;
using graph::ReduceOp;
using graph::TransposeOp;

/// Dimension numbers of one operand.
struct Dims {
  SmallVector<int64_t> batch, contract;
};

/// The product `op` of other operands.
ContractOp createContract(PatternRewriter &rewriter, ContractOp op, Value lhs, Value rhs,
                          const Dims &l, const Dims &r) {
  auto made = rewriter.create<ContractOp>(op.getLoc(), lhs, rhs, l.batch, r.batch,
                                          l.contract, r.contract, op.getRoundToAttr());
  made->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  return made;
}

Dims lhsDims(ContractOp op) {
  return {llvm::to_vector(op.getLhsBatch()), llvm::to_vector(op.getLhsContract())};
}
Dims rhsDims(ContractOp op) {
  return {llvm::to_vector(op.getRhsBatch()), llvm::to_vector(op.getRhsContract())};
}

/// Dimensions of the transposed operand's source; nothing when the order of the free
/// ones, and so of the result, would change.
std::optional<Dims> throughTranspose(const Dims &dims, ArrayRef<int64_t> permutation) {
  int64_t rank = permutation.size();
  int64_t previous = -1;
  for (int64_t dim : freeDims(rank, dims.batch, dims.contract)) {
    if (permutation[dim] < previous)
      return std::nullopt;
    previous = permutation[dim];
  }
  Dims mapped;
  for (int64_t dim : dims.batch)
    mapped.batch.push_back(permutation[dim]);
  for (int64_t dim : dims.contract)
    mapped.contract.push_back(permutation[dim]);
  return mapped;
}

/// contract(transpose(x), y) -> contract(x, y) when the kernel can read x as it lies.
struct FoldOperandTranspose : OpRewritePattern<ContractOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ContractOp op, PatternRewriter &rewriter) const override {
    return success(succeeded(fold(op, rewriter, 0)) || succeeded(fold(op, rewriter, 1)));
  }

private:
  static LogicalResult fold(ContractOp op, PatternRewriter &rewriter, unsigned operand) {
    auto transpose = op->getOperand(operand).getDefiningOp<TransposeOp>();
    if (!transpose)
      return failure();
    Dims l = lhsDims(op), r = rhsDims(op);
    Dims &mine = operand == 0 ? l : r;
    std::optional<Dims> mapped = throughTranspose(mine, transpose.getPermutation());
    if (!mapped)
      return failure();
    mine = *mapped;
    Value lhs = operand == 0 ? transpose.getX() : op.getLhs();
    Value rhs = operand == 1 ? transpose.getX() : op.getRhs();
    ContractOp folded = createContract(rewriter, op, lhs, rhs, l, r);
    if (!contractAsGemm(folded)) {
      rewriter.eraseOp(folded);
      return failure();
    }
    rewriter.replaceOp(op, folded);
    return success();
  }
};

/// transpose(contract(a, b)) that swaps rows and columns -> contract(b, a).
struct FoldResultTranspose : OpRewritePattern<TransposeOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(TransposeOp op,
                                PatternRewriter &rewriter) const override {
    auto contract = op.getX().getDefiningOp<ContractOp>();
    if (!contract || !contract->hasOneUse())
      return failure();
    int64_t batch = contract.getLhsBatch().size();
    int64_t rank = graph::tensorType(op.getY()).getRank();
    int64_t rows = graph::tensorType(contract.getLhs()).getRank() - batch -
                   int64_t(contract.getLhsContract().size());
    for (int64_t i = 0; i < rank; ++i) {
      int64_t cols = rank - batch - rows;
      int64_t expected = i < batch ? i : i < batch + cols ? i + rows : i - cols;
      if (op.getPermutation()[i] != expected)
        return failure();
    }
    ContractOp swapped =
        createContract(rewriter, contract, contract.getRhs(), contract.getLhs(),
                       rhsDims(contract), lhsDims(contract));
    if (!contractAsGemm(swapped)) {
      rewriter.eraseOp(swapped);
      return failure();
    }
    rewriter.replaceOp(op, swapped);
    rewriter.eraseOp(contract);
    return success();
  }
};

/// Transposes operands to [batch, free, contract] and [batch, contract, free] when no
/// kernel reads them as they lie.
struct TransposeOperands : OpRewritePattern<ContractOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ContractOp op, PatternRewriter &rewriter) const override {
    if (contractAsGemm(op))
      return failure();
    Dims l = lhsDims(op), r = rhsDims(op);
    Value lhs = arrange(rewriter, op.getLhs(), l, /*freeFirst=*/true);
    Value rhs = arrange(rewriter, op.getRhs(), r, /*freeFirst=*/false);
    if (lhs == op.getLhs() && rhs == op.getRhs())
      return failure();
    rewriter.replaceOp(op, createContract(rewriter, op, lhs, rhs, l, r));
    return success();
  }

private:
  static Value arrange(PatternRewriter &rewriter, Value x, Dims &dims, bool freeFirst) {
    SmallVector<int64_t> order = dims.batch;
    int64_t rank = graph::tensorType(x).getRank();
    SmallVector<int64_t> free = freeDims(rank, dims.batch, dims.contract);
    if (freeFirst)
      order.append(free);
    int64_t contractAt = order.size();
    order.append(dims.contract);
    if (!freeFirst)
      order.append(free);
    for (auto [i, dim] : llvm::enumerate(dims.batch))
      dim = i;
    for (auto [i, dim] : llvm::enumerate(dims.contract))
      dim = contractAt + i;
    if (llvm::is_sorted(order))
      return x;
    return rewriter.create<TransposeOp>(x.getLoc(), x, order);
  }
};

/// A reduction over nothing is its neutral value.
struct FoldEmptyReduce : OpRewritePattern<ReduceOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ReduceOp op, PatternRewriter &rewriter) const override {
    auto from = graph::tensorType(op.getX()), to = graph::tensorType(op.getY());
    if (from.getNumElements() != 0 || !isa<FloatType>(to.getElementType()))
      return failure();
    double neutral = llvm::StringSwitch<double>(op.getKind())
                         .Case("max", -std::numeric_limits<double>::infinity())
                         .Case("min", std::numeric_limits<double>::infinity())
                         .Case("prod", 1.0)
                         .Default(0.0);
    rewriter.replaceOp(op, graph::GraphBuilder(op.getLoc(), rewriter).splat(to, neutral));
    return success();
  }
};

/// A reduction that no walk covers gets its reduced dimensions last.
struct TransposeReduced : OpRewritePattern<ReduceOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ReduceOp op, PatternRewriter &rewriter) const override {
    auto type = graph::tensorType(op.getX());
    SmallVector<int64_t> axes = llvm::to_vector(op.getAxes());
    SmallVector<int64_t> order = freeDims(type.getRank(), axes, {});
    int64_t kept = order.size();
    order.append(axes);
    if (op->use_empty() || llvm::is_sorted(order) || succeeded(analyse(op)))
      return failure();
    graph::GraphBuilder build(op.getLoc(), rewriter);
    Value moved = build.transpose(op.getX(), order);
    SmallVector<int64_t> last;
    for (int64_t axis = kept; axis < type.getRank(); ++axis)
      last.push_back(axis);
    Value reduced = build.reduce(moved, op.getKind(), last, /*keep=*/false);
    rewriter.replaceOp(op,
                       build.reshape(reduced, graph::tensorType(op.getY()).getShape()));
    return success();
  }

private:
  static FailureOr<RegionDomain> analyse(ReduceOp op) {
    Operation *single = op;
    return analyseRegion(ArrayRef(single));
  }
};

/// A large reduction with few units is first reduced in slices of its outermost reduced
/// dimension.
struct SplitReduce : OpRewritePattern<ReduceOp> {
  using OpRewritePattern::OpRewritePattern;
  static constexpr int64_t largeElements = 65536, enoughUnits = 8;

  LogicalResult matchAndRewrite(ReduceOp op, PatternRewriter &rewriter) const override {
    auto type = graph::tensorType(op.getX());
    if (type.getNumElements() < largeElements || op.getKind() == "prod" ||
        op->use_empty())
      return failure();
    Operation *single = op;
    FailureOr<RegionDomain> domain = analyseRegion(ArrayRef(single));
    if (failed(domain) || domain->units >= enoughUnits)
      return failure();
    ArrayRef<int64_t> axes = op.getAxes();
    auto sliced =
        llvm::find_if(axes, [&](int64_t axis) { return slices(type, axis) > 1; });
    if (sliced == axes.end())
      return failure();
    rewriter.replaceOp(op, split(op, *sliced, rewriter));
    return success();
  }

private:
  /// The largest divisor of the dimension up to 32 that leaves enough in a slice.
  static int64_t slices(RankedTensorType type, int64_t axis) {
    for (int64_t count = 32; count >= enoughUnits; --count)
      if (type.getDimSize(axis) % count == 0 && type.getNumElements() / count >= 4096)
        return count;
    return 1;
  }

  static Value split(ReduceOp op, int64_t axis, PatternRewriter &rewriter) {
    auto type = graph::tensorType(op.getX());
    int64_t count = slices(type, axis);
    SmallVector<int64_t> shape = llvm::to_vector(type.getShape());
    shape[axis] /= count;
    shape.insert(shape.begin() + axis, count);
    SmallVector<int64_t> inner;
    for (int64_t other : op.getAxes())
      inner.push_back(other >= axis ? other + 1 : other);
    graph::GraphBuilder build(op.getLoc(), rewriter);
    Value sliced = build.reshape(op.getX(), shape);
    Value partial = build.reduce(sliced, op.getKind(), inner, /*keep=*/false);
    // The slices stand where the reduced dimensions before them are gone.
    int64_t at = axis - llvm::count_if(op.getAxes(), [&](int64_t a) { return a < axis; });
    Value total = build.reduce(partial, op.getKind(), {at}, /*keep=*/false);
    return build.reshape(total, graph::tensorType(op.getY()).getShape());
  }
};

/// Scans and positions of extremes have kernels for f32 and i64: narrower integers are
/// widened before and, where the result is of the operand's type, narrowed after, which
/// wraps as they would.
template <typename Op> struct WidenIntegers : OpRewritePattern<Op> {
  using OpRewritePattern<Op>::OpRewritePattern;
  LogicalResult matchAndRewrite(Op op, PatternRewriter &rewriter) const override {
    Type narrow = graph::tensorType(op.getX()).getElementType();
    if (!narrow.isInteger() || narrow.isInteger(64))
      return failure();
    graph::GraphBuilder build(op.getLoc(), rewriter);
    Type element = graph::tensorType(op.getY()).getElementType();
    IRMapping widened;
    widened.map(op.getX(), build.cast(op.getX(), rewriter.getI64Type()));
    Value result = rewriter.clone(*op, widened)->getResult(0);
    if (element == narrow) {
      result.setType(graph::tensorType(result).clone(rewriter.getI64Type()));
      result = build.cast(result, narrow);
    }
    rewriter.replaceOp(op, result);
    return success();
  }
};

/// The gradient of a maximum pool reads 16 bits as they are: widening them first would
/// cost their f32 copies.
struct ReadNarrow : OpRewritePattern<graph::MaxPoolGradOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(graph::MaxPoolGradOp op,
                                PatternRewriter &rewriter) const override {
    bool found = false;
    for (OpOperand &operand : op->getOpOperands()) {
      auto cast = operand.get().getDefiningOp<graph::CastOp>();
      std::optional<int64_t> from =
          cast ? formatOf(graph::tensorType(cast.getX()).getElementType()) : std::nullopt;
      if (!from || *from == format::kF32 || !cast.getElementType().isF32())
        continue;
      rewriter.modifyOpInPlace(op, [&] { operand.set(cast.getX()); });
      found = true;
    }
    return success(found);
  }
};

struct LegalizeForKernels : impl::LegalizeForKernelsBase<LegalizeForKernels> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns
        .add<FoldOperandTranspose, FoldResultTranspose, FoldEmptyReduce, SplitReduce,
             ReadNarrow, WidenIntegers<graph::CumSumOp>, WidenIntegers<graph::ArgMaxOp>>(
            &getContext());
    addShapePatterns(patterns);
    // Only what the others leave: transposes cost a trip through memory.
    RewritePatternSet transposes(&getContext());
    transposes.add<TransposeOperands, TransposeReduced>(&getContext());
    if (failed(applyPatternsAndFoldGreedily(getOperation(), std::move(patterns))) ||
        failed(applyPatternsAndFoldGreedily(getOperation(), std::move(transposes))))
      signalPassFailure();
  }
};

} // namespace

std::unique_ptr<Pass> createLegalizeForKernels() {
  return std::make_unique<LegalizeForKernels>();
}
} // namespace sluice
