// Contractions become matrix products; a transpose of the result is folded into the
// strides they write with.

#include "kernels/Params.h"
#include "passes/ContractShape.h"
#include "passes/lowering/Lowerings.h"

using namespace mlir;

namespace sluice {
namespace {

/// The value to write: the op's result, or that of a transpose that is its only use and
/// that the kernel can write.
struct Target {
  Value value;
  GemmParams params;
};

FailureOr<Target> chooseTarget(graph::ContractOp op) {
  if (op.getY().hasOneUse()) {
    if (auto transpose = dyn_cast<graph::TransposeOp>(*op.getY().user_begin())) {
      SmallVector<int64_t> strides =
          rowMajorStrides(graph::tensorType(transpose.getY()).getShape());
      SmallVector<int64_t> written(strides.size());
      for (auto [i, from] : llvm::enumerate(transpose.getPermutation()))
        written[from] = strides[i];
      if (auto params = contractAsGemm(op, written))
        return Target{transpose.getY(), *params};
    }
  }
  if (auto params = contractAsGemm(op))
    return Target{op.getY(), *params};
  return op.emitError("dimensions of the product do not collapse to rows and columns; "
                      "run 'legalize-for-kernels' before");
}

class ContractLowering {
public:
  ContractLowering(graph::ContractOp op, ProgramBuilder &builder, Value y)
      : op(op), builder(builder), a(builder.bufferOf(op.getLhs())),
        b(builder.bufferOf(op.getRhs())), c(builder.destination(y)) {}

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

LogicalResult lowerContract(graph::ContractOp op, ProgramBuilder &builder) {
  if (failed(expectF32(op, op.getLhs())) || failed(expectF32(op, op.getRhs())))
    return failure();
  if (graph::tensorType(op.getY()).getNumElements() == 0) {
    builder.destination(op.getY());
    return success();
  }
  FailureOr<Target> target = chooseTarget(op);
  if (failed(target))
    return failure();
  if (target->params.k == 0) {
    auto type = graph::tensorType(target->value);
    lowerFill(op, builder.destination(target->value), type,
              FloatAttr::get(type.getElementType(), 0.0), builder);
    return success();
  }
  ContractLowering(op, builder, target->value)
      .run(planGemm(target->params, /*wholeRows=*/false));
  return success();
}

} // namespace sluice
