// Pooling and its adjoints: one unit per plane.

#include "kernels/Params.h"
#include "passes/ContractShape.h"
#include "passes/NarrowReads.h"
#include "passes/lowering/Lowerings.h"
#include "passes/lowering/Spatial.h"

using namespace mlir;

namespace sluice {
namespace {

/// `x` is the larger side, `y` the pooled one.
template <typename Op> PoolParams paramsOf(Op op, Value x, Value y) {
  auto xs = graph::tensorType(x).getShape(), ys = graph::tensorType(y).getShape();
  PoolParams params;
  params.planes = xs[0] * xs[1];
  setSpatial(params.in, xs.drop_front(2));
  setSpatial(params.out, ys.drop_front(2));
  setSpatial(params.kernel, op.getKernel());
  setSpatial(params.stride, op.getStrides());
  setSpatial(params.dilation, op.getDilations());
  setSpatial(params.pad, op.getPadsBegin());
  setSpatial(params.padEnd, op.getPadsEnd());
  return params;
}

template <typename Op>
LogicalResult lowerPool(Op op, PoolParams params, StringRef kernel, bool grad,
                        ProgramBuilder &builder) {
  if (failed(formatsOf(op)))
    return failure();
  StageSpec stage;
  SmallVector<int64_t, 4> formats;
  for (Value operand : op->getOperands()) {
    Value source = narrowSource(operand);
    stage.ins.push_back(builder.bufferOf(source));
    formats.push_back(*formatOf(graph::tensorType(source).getElementType()));
  }
  params.sourceType = formats.front();
  params.resultType = *formatOf(graph::tensorType(op.getY()).getElementType());
  if (formats.size() == 2)
    params.dyType = formats[1];
  if (grad)
    stage.scratchBytes = poolGradWorkerBytes(params);
  stage.kernel = builder.symbols.builtin(kernel);
  stage.outs = {builder.destination(op.getY())};
  stage.params = packParams(params);
  if (graph::tensorType(op.getY()).getNumElements() > 0)
    builder.launch(op,
                   {op->getName().stripDialect().str(), params.planes, poolChunk(params),
                    op.flops()},
                   stage);
  return success();
}

} // namespace

LogicalResult lowerMaxPool(graph::MaxPoolOp op, ProgramBuilder &builder) {
  return lowerPool(op, paramsOf(op, op.getX(), op.getY()), "max_pool_f32",
                   /*grad=*/false, builder);
}

LogicalResult lowerMaxPoolGrad(graph::MaxPoolGradOp op, ProgramBuilder &builder) {
  return lowerPool(op, paramsOf(op, op.getX(), op.getDy()), "max_pool_grad_f32",
                   /*grad=*/true, builder);
}

LogicalResult lowerAvgPool(graph::AvgPoolOp op, ProgramBuilder &builder) {
  PoolParams params = paramsOf(op, op.getX(), op.getY());
  params.countIncludePad = op.getCountIncludePad();
  return lowerPool(op, params, "avg_pool_f32", /*grad=*/false, builder);
}

LogicalResult lowerAvgPoolGrad(graph::AvgPoolGradOp op, ProgramBuilder &builder) {
  PoolParams params = paramsOf(op, op.getY(), op.getDy());
  params.countIncludePad = op.getCountIncludePad();
  return lowerPool(op, params, "avg_pool_grad_f32", /*grad=*/true, builder);
}

} // namespace sluice
