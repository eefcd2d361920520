// The CTC loss and its gradient.

#include "kernels/Params.h"
#include "passes/lowering/Lowerings.h"

using namespace mlir;

namespace sluice {

template <class OpT> static CtcParams paramsOf(OpT op) {
  ArrayRef<int64_t> shape = graph::tensorType(op.getLogProbs()).getShape();
  CtcParams params;
  params.batch = shape[0], params.frames = shape[1], params.classes = shape[2];
  params.labels = graph::tensorType(op.getTargets()).getDimSize(1);
  params.blank = op.getBlank();
  params.zeroInfinity = op.getZeroInfinity(), params.perLabel = op.getPerLabel();
  return params;
}

static LogicalResult lower(Operation *op, StringRef kernel, const CtcParams &params,
                           int64_t workspace, ProgramBuilder &builder) {
  if (failed(expectF32(op, op->getOperand(0))))
    return failure();
  for (Value integers : op->getOperands().drop_front())
    if (!graph::tensorType(integers).getElementType().isInteger(64))
      return op->emitError("'") << op->getName() << "' has an operand of type "
                                << integers.getType() << ", expected i64";
  Value out = builder.destination(op->getResult(0));
  if (graph::tensorType(op->getResult(0)).getNumElements() == 0)
    return success();
  SmallVector<Value> ins;
  for (Value operand : op->getOperands())
    ins.push_back(builder.bufferOf(operand));
  LaunchSpec spec{op->getName().stripDialect().str(), ctcUnits(params), 1,
                  cast<graph::Costed>(op).flops()};
  builder.launch(op, spec,
                 StageSpec{builder.symbols.builtin(kernel),
                           ins,
                           {out},
                           workspace,
                           packParams(params),
                           {}});
  return success();
}

LogicalResult lowerCtcLoss(graph::CtcLossOp op, ProgramBuilder &builder) {
  CtcParams params = paramsOf(op);
  return lower(op, "ctc_loss_f32", params, ctcLossWorkspace(params), builder);
}

LogicalResult lowerCtcLossGrad(graph::CtcLossGradOp op, ProgramBuilder &builder) {
  CtcParams params = paramsOf(op);
  return lower(op, "ctc_loss_grad_f32", params, ctcGradWorkspace(params), builder);
}

} // namespace sluice
