// Contractions become matrix products; a transpose of the result is folded into the
// strides they write with.

#include "kernels/Params.h"
#include "passes/AddProduct.h"
#include "passes/ContractShape.h"
#include "passes/NarrowReads.h"
#include "passes/lowering/Lowerings.h"
#include "passes/lowering/StridedView.h"

using namespace mlir;

namespace sluice {
namespace {

/// A product with the places it reads and writes.
struct Placed {
  GemmParams params;
  StridedView lhs, rhs, result;
};

/// Reads and writes through as many views as the kernel's strides can express.
FailureOr<Placed> placeProduct(graph::ContractOp op, Value left, Value right,
                               const ProgramBuilder &builder) {
  left = narrowSource(left), right = narrowSource(right);
  StridedView lhs[] = {readView(left, builder), contiguousView(left)};
  StridedView rhs[] = {readView(right, builder), contiguousView(right)};
  StridedView result[] = {writeView(op.getY(), builder), contiguousView(op.getY())};
  for (const StridedView &y : result)
    for (const StridedView &a : lhs)
      for (const StridedView &b : rhs)
        if (auto params = contractAsGemm(op, {a.strides, b.strides, y.strides}))
          return Placed{*params, a, b, y};
  return op.emitError("dimensions of the product do not collapse to rows and columns; "
                      "run 'legalize-for-kernels' before");
}

class ContractLowering {
public:
  /// `op` is in the place of `product`, or the product itself.
  ContractLowering(Operation *op, graph::ContractOp product, const Placed &placed,
                   ProgramBuilder &builder)
      : op(op), flops(product.flops()), builder(builder),
        a(bytesFrom(placed.lhs, builder.bufferOf(placed.lhs.root), builder)),
        b(bytesFrom(placed.rhs, builder.bufferOf(placed.rhs.root), builder)),
        c(bytesFrom(placed.result, builder.destination(placed.result.root), builder)) {}

  void run(const GemmPlan &plan) {
    switch (plan.kind) {
    case GemmPlan::Direct:
      builder.launch(
          op, product(plan),
          {kernel("gemm_f32"), {a, b}, {c}, plan.workerBytes, packParams(plan.gemm), {}});
      break;
    case GemmPlan::Packed:
      runPacked(plan);
      break;
    case GemmPlan::SplitK:
      runSplitK(plan);
      break;
    }
  }

private:
  FlatSymbolRefAttr kernel(StringRef name) { return builder.symbols.builtin(name); }
  LaunchSpec product(const GemmPlan &plan) {
    return {"contract", plan.gemmUnits, plan.gemmChunk, flops};
  }

  void runPacked(const GemmPlan &plan) {
    Value packed = builder.buffer("packed", "workspace", plan.packedBytes);
    builder.launch(
        op, {"pack", plan.packUnits, plan.packChunk, 0},
        {kernel("gemm_pack_b_f32"), {b}, {packed}, 0, packParams(plan.pack), {}});
    builder.launch(op, product(plan),
                   {kernel("gemm_packed_f32"),
                    {a, packed},
                    {c},
                    plan.workerBytes,
                    packParams(plan.gemm),
                    {}});
  }

  void runSplitK(const GemmPlan &plan) {
    Value partial = builder.buffer("partial", "workspace", plan.partialBytes);
    builder.launch(op, {"contract", plan.splitUnits, plan.splitChunk, flops},
                   {kernel("gemm_splitk_f32"),
                    {a, b},
                    {partial},
                    plan.workerBytes,
                    packParams(plan.split),
                    {}});
    builder.launch(
        op, {"sum slices", plan.sumUnits, plan.sumChunk, 0},
        {kernel("sum_slices_f32"), {partial}, {c}, 0, packParams(plan.sum), {}});
  }

  Operation *op;
  double flops;
  ProgramBuilder &builder;
  Value a, b, c;
};

} // namespace

LogicalResult expectF32(Operation *op, Value value) {
  if (graph::tensorType(value).getElementType().isF32())
    return success();
  return op->emitError("element type ")
         << graph::tensorType(value).getElementType() << " of '" << op->getName()
         << "' has no kernel yet; use f32";
}

FailureOr<SmallVector<int64_t, 4>> formatsOf(Operation *op) {
  SmallVector<int64_t, 4> formats;
  for (ValueRange values : {ValueRange(op->getOperands()), ValueRange(op->getResults())})
    for (Value value : values) {
      Type element = graph::tensorType(value).getElementType();
      std::optional<int64_t> format = formatOf(element);
      if (!format)
        return op->emitError("element type ") << element << " of '" << op->getName()
                                              << "' has no kernel yet; use f32, bf16 or "
                                                 "f16";
      formats.push_back(*format);
    }
  return formats;
}

LogicalResult lowerContract(graph::ContractOp op, ProgramBuilder &builder) {
  if (failed(formatsOf(op)))
    return failure();
  if (graph::tensorType(op.getY()).getNumElements() == 0) {
    builder.destination(op.getY());
    return success();
  }
  FailureOr<Placed> placed = placeProduct(op, op.getLhs(), op.getRhs(), builder);
  if (failed(placed))
    return failure();
  if (placed->params.k == 0) {
    lowerFill(op, builder.destination(op.getY()), graph::tensorType(op.getY()),
              builder.launches.getF32FloatAttr(0), builder);
    return success();
  }
  ContractLowering(op, op, *placed, builder)
      .run(planGemm(placed->params, /*wholeRows=*/false, builder.workers()));
  if (placed->result.root != op.getY())
    builder.markWritten(op.getY());
  return success();
}

LogicalResult lowerAddProduct(graph::RegionOp op, ProgramBuilder &builder) {
  graph::ContractOp product = addedProduct(op);
  if (failed(formatsOf(product)))
    return failure();
  Value sum = builder.bufferOf(op.getInputs()[addedSum]);
  Value target = builder.destination(op.getResult(0));
  auto type = graph::tensorType(op.getResult(0));
  if (sum != target)
    builder.copy(op, sum, target, type.getNumElements(),
                 plan::elementBytes(type.getElementType()));
  FailureOr<Placed> placed =
      placeProduct(product, op.getInputs()[0], op.getInputs()[1], builder);
  if (failed(placed))
    return failure();
  placed->result = contiguousView(op.getResult(0));
  placed->params.accumulate = 1;
  ContractLowering(op, product, *placed, builder)
      .run(planGemm(placed->params, /*wholeRows=*/false, builder.workers()));
  return success();
}

void bindAddedSums(Block &block, ProgramBuilder &builder) {
  for (Operation &op : llvm::reverse(block)) {
    if (!addedProduct(&op))
      continue;
    Value target = builder.destination(op.getResult(0));
    Value sum = op.getOperand(addedSum);
    if (sum.hasOneUse() && sum.getDefiningOp() && !builder.find(sum) &&
        (addedProduct(sum.getDefiningOp()) ||
         isa<graph::ContractOp>(sum.getDefiningOp())))
      builder.bind(sum, target);
  }
}

} // namespace sluice
