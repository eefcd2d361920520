// Contractions become matrix products; a transpose of the result is folded into the
// strides they write with.

#include "kernels/Params.h"
#include "passes/AddProduct.h"
#include "passes/CodedProducts.h"
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
  SmallVector<Value> scales = {}; // of codes
};

/// The first of the ways to read and write that the kernel's strides can express.
FailureOr<Placed> placeProduct(graph::ContractOp op, ArrayRef<StridedView> lhs,
                               ArrayRef<StridedView> rhs, Value result,
                               const ProgramBuilder &builder) {
  StridedView results[] = {writeView(result, builder), contiguousView(result)};
  for (const StridedView &y : results)
    for (const StridedView &a : lhs)
      for (const StridedView &b : rhs)
        if (auto params = contractAsGemm(op, {a.strides, b.strides, y.strides}))
          return Placed{*params, a, b, y};
  return op.emitError("dimensions of the product do not collapse to rows and columns; "
                      "run 'legalize-for-kernels' before");
}

/// Through as many views as there are, or as it is.
SmallVector<StridedView> viewsOf(Value value, const ProgramBuilder &builder) {
  value = narrowSource(value);
  return {readView(value, builder), contiguousView(value)};
}

class ContractLowering {
public:
  /// `op` is in the place of `product`, or the product itself.
  ContractLowering(Operation *op, graph::ContractOp product, const Placed &placed,
                   ProgramBuilder &builder)
      : op(op), flops(product.flops()), builder(builder),
        a(bytesFrom(placed.lhs, builder.bufferOf(placed.lhs.root), builder)),
        b(bytesFrom(placed.rhs, builder.bufferOf(placed.rhs.root), builder)),
        c(bytesFrom(placed.result, builder.destination(placed.result.root), builder)) {
    for (Value scale : placed.scales)
      scales.push_back(builder.bufferOf(scale));
  }

  void run(const GemmPlan &plan) {
    switch (plan.kind) {
    case GemmPlan::Direct:
      builder.launch(op, product(plan),
                     {kernel("gemm_f32"),
                      read(b),
                      {c},
                      plan.workerBytes,
                      packParams(plan.gemm),
                      {}});
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
  /// A, B or what it was packed to, and scales.
  SmallVector<Value> read(Value second) const {
    SmallVector<Value> operands = {a, second};
    operands.append(scales);
    return operands;
  }
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
                    read(packed),
                    {c},
                    plan.workerBytes,
                    packParams(plan.gemm),
                    {}});
  }

  void runSplitK(const GemmPlan &plan) {
    Value partial = builder.buffer("partial", "workspace", plan.partialBytes);
    builder.launch(op, {"contract", plan.splitUnits, plan.splitChunk, flops},
                   {kernel("gemm_splitk_f32"),
                    read(b),
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
  SmallVector<Value> scales;
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
  FailureOr<Placed> placed =
      placeProduct(op, viewsOf(op.getLhs(), builder), viewsOf(op.getRhs(), builder),
                   op.getY(), builder);
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
      placeProduct(product, viewsOf(op.getInputs()[0], builder),
                   viewsOf(op.getInputs()[1], builder), product.getY(), builder);
  if (failed(placed))
    return failure();
  placed->result = contiguousView(op.getResult(0));
  placed->params.accumulate = 1;
  ContractLowering(op, product, *placed, builder)
      .run(planGemm(placed->params, /*wholeRows=*/false, builder.workers()));
  return success();
}

LogicalResult lowerCodedProduct(graph::RegionOp op, ProgramBuilder &builder) {
  graph::ContractOp product = codedProduct(op);
  ProductSource sources[] = {productSource(op, product.getLhs()),
                             productSource(op, product.getRhs())};
  SmallVector<StridedView> views[2];
  CodedAs codes[2];
  for (auto [i, source] : llvm::enumerate(sources)) {
    if (!source.format) {
      views[i] = viewsOf(source.inputs[0], builder);
      continue;
    }
    auto shape = graph::tensorType(product->getOperand(i)).getShape();
    views[i] = {{source.inputs[0], 0, rowMajorStrides(shape)}};
    MatrixShape matrix = matrixOf({source.shape.data(), source.shape.size()});
    codes[i] = {int64_t(*source.format), matrix.count(), matrix.columns};
  }
  FailureOr<Placed> placed =
      placeProduct(product, views[0], views[1], op.getResult(0), builder);
  if (failed(placed))
    return failure();
  placed->params.aCodes = codes[0], placed->params.bCodes = codes[1];
  for (const ProductSource &source : sources)
    placed->scales.append(source.inputs.begin() + 1, source.inputs.end());
  ContractLowering(op, product, *placed, builder)
      .run(planGemm(placed->params, /*wholeRows=*/false, builder.workers()));
  if (placed->result.root != op.getResult(0))
    builder.markWritten(op.getResult(0));
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
