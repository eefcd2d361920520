// Contractions become matrix products; a transpose of the result is folded into the
// strides they write with.

#include "kernels/Params.h"
#include "passes/ContractShape.h"
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
FailureOr<Placed> placeProduct(graph::ContractOp op, const ProgramBuilder &builder) {
  StridedView lhs[] = {readView(op.getLhs(), builder), contiguousView(op.getLhs())};
  StridedView rhs[] = {readView(op.getRhs(), builder), contiguousView(op.getRhs())};
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
  ContractLowering(graph::ContractOp op, const Placed &placed, ProgramBuilder &builder)
      : op(op), builder(builder),
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
    return {"contract", plan.gemmUnits, plan.gemmChunk, op.flops()};
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
    builder.launch(op, {"contract", plan.splitUnits, plan.splitChunk, op.flops()},
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

  graph::ContractOp op;
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
  FailureOr<Placed> placed = placeProduct(op, builder);
  if (failed(placed))
    return failure();
  if (placed->params.k == 0) {
    lowerFill(op, builder.destination(op.getY()), graph::tensorType(op.getY()),
              builder.launches.getF32FloatAttr(0), builder);
    return success();
  }
  ContractLowering(op, *placed, builder)
      .run(planGemm(placed->params, /*wholeRows=*/false));
  if (placed->result.root != op.getY())
    builder.markWritten(op.getY());
  return success();
}

} // namespace sluice
