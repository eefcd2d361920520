// Convolutions and their adjoints: depthwise kernels where they apply, else implicit
// products, which read weights where they lie.

#include "kernels/Params.h"
#include "passes/ContractShape.h"
#include "passes/NarrowReads.h"
#include "passes/lowering/Lowerings.h"
#include "passes/lowering/Spatial.h"

using namespace mlir;

namespace sluice {
namespace {

/// x [n, c, in...], w [m, c / groups, kernel...], y [n, m, out...].
template <typename Op> ConvGeometry geometryOf(Op op, Type x, Type w, Type y) {
  auto xs = cast<RankedTensorType>(x).getShape(),
       ws = cast<RankedTensorType>(w).getShape(),
       ys = cast<RankedTensorType>(y).getShape();
  ConvGeometry g;
  g.n = xs[0], g.c = xs[1], g.m = ws[0], g.groups = op.getGroups();
  setSpatial(g.in, xs.drop_front(2));
  setSpatial(g.kernel, ws.drop_front(2));
  setSpatial(g.out, ys.drop_front(2));
  setSpatial(g.stride, op.getStrides());
  setSpatial(g.dilation, op.getDilations());
  setSpatial(g.pad, op.getPadsBegin());
  return g;
}

bool isEmpty(Value value) { return graph::tensorType(value).getNumElements() == 0; }

void fillZeros(Operation *op, ProgramBuilder &builder) {
  auto type = graph::tensorType(op->getResult(0));
  lowerFill(op, builder.destination(op->getResult(0)), type,
            FloatAttr::get(type.getElementType(), 0.0), builder);
}

/// What the kernels read, and the formats of that and of the result.
struct Operands {
  Value first, second;
  int64_t firstFormat = 0, secondFormat = 0, resultFormat = 0;
};

FailureOr<Operands> operandsOf(Operation *op) {
  auto formats = formatsOf(op);
  if (failed(formats))
    return failure();
  auto formatOfValue = [](Value value) {
    return *formatOf(graph::tensorType(value).getElementType());
  };
  Value first = narrowSource(op->getOperand(0)), second = narrowSource(op->getOperand(1));
  return Operands{first, second, formatOfValue(first), formatOfValue(second),
                  formats->back()};
}

/// `Params`: a geometry and the formats of both operands and the result.
template <typename Params>
void lowerDepthwise(Operation *op, StringRef kernel, const Operands &operands,
                    const Params &params, int64_t units, double flops,
                    int64_t workerBytes, ProgramBuilder &builder) {
  StageSpec stage{builder.symbols.builtin(kernel),
                  {builder.bufferOf(operands.first), builder.bufferOf(operands.second)},
                  {builder.destination(op->getResult(0))},
                  workerBytes,
                  packParams(params),
                  {}};
  builder.launch(op, {op->getName().stripDialect().str(), units, 1, flops}, stage);
}

} // namespace

std::optional<ConvGeometry> convGeometry(Operation *op) {
  if (auto conv = dyn_cast<graph::ConvOp>(op))
    return geometryOf(conv, conv.getX().getType(), conv.getW().getType(),
                      conv.getY().getType());
  if (auto grad = dyn_cast<graph::ConvInputGradOp>(op))
    return geometryOf(grad, grad.getY().getType(), grad.getW().getType(),
                      grad.getDy().getType());
  if (auto grad = dyn_cast<graph::ConvWeightGradOp>(op))
    return geometryOf(grad, grad.getX().getType(), grad.getY().getType(),
                      grad.getDy().getType());
  return std::nullopt;
}

LogicalResult lowerConv(graph::ConvOp op, ProgramBuilder &builder) {
  FailureOr<Operands> operands = operandsOf(op);
  if (failed(operands))
    return failure();
  if (isEmpty(op.getY()) || isEmpty(op.getX()) || isEmpty(op.getW()))
    return fillZeros(op, builder), success();
  ConvGeometry g = *convGeometry(op);
  if (isDepthwise(g)) {
    DepthwiseParams params{g, operands->firstFormat, operands->secondFormat,
                           operands->resultFormat};
    lowerDepthwise(op, "depthwise_forward_f32", *operands, params, g.n * g.m, op.flops(),
                   /*workerBytes=*/0, builder);
    return success();
  }
  ConvParams params = planConvForward(g, operands->firstFormat, operands->secondFormat,
                                      operands->resultFormat);
  builder.launch(op, {"conv", convForwardUnits(params), 1, op.flops()},
                 {builder.symbols.builtin("conv_forward_f32"),
                  {builder.bufferOf(operands->first), builder.bufferOf(operands->second)},
                  {builder.destination(op.getY())},
                  convForwardWorkerBytes(params),
                  packParams(params),
                  {}});
  return success();
}

LogicalResult lowerConvInputGrad(graph::ConvInputGradOp op, ProgramBuilder &builder) {
  FailureOr<Operands> operands = operandsOf(op);
  if (failed(operands))
    return failure();
  if (isEmpty(op.getY()) || isEmpty(op.getDy()) || isEmpty(op.getW()))
    return fillZeros(op, builder), success();
  ConvGeometry g = *convGeometry(op);
  if (isDepthwise(g)) {
    DepthwiseParams params{g, operands->firstFormat, operands->secondFormat,
                           operands->resultFormat};
    lowerDepthwise(op, "depthwise_input_grad_f32", *operands, params, g.n * g.c,
                   op.flops(), depthwiseWorkerBytes(params, /*inputGrad=*/true), builder);
    return success();
  }
  ConvParams params = planConvInputGrad(g, operands->firstFormat, operands->secondFormat,
                                        operands->resultFormat);
  builder.launch(op, {"conv_input_grad", convInputGradUnits(params), 1, op.flops()},
                 {builder.symbols.builtin("conv_input_grad_f32"),
                  {builder.bufferOf(operands->first), builder.bufferOf(operands->second)},
                  {builder.destination(op.getY())},
                  convInputGradWorkerBytes(params),
                  packParams(params),
                  {}});
  return success();
}

LogicalResult lowerConvWeightGrad(graph::ConvWeightGradOp op, ProgramBuilder &builder) {
  FailureOr<Operands> operands = operandsOf(op);
  if (failed(operands))
    return failure();
  if (isEmpty(op.getY()) || isEmpty(op.getDy()) || isEmpty(op.getX()))
    return fillZeros(op, builder), success();
  ConvGeometry g = *convGeometry(op);
  if (isDepthwise(g)) {
    DepthwiseWeightGradParams params{g, operands->firstFormat, operands->secondFormat,
                                     operands->resultFormat};
    lowerDepthwise(op, "depthwise_weight_grad_f32", *operands, params, g.m, op.flops(),
                   /*workerBytes=*/0, builder);
    return success();
  }
  ConvWeightGradParams params = planConvWeightGrad(g);
  params.xType = operands->firstFormat, params.dyType = operands->secondFormat;
  Value result = builder.destination(op.getY());
  // Sums are f32: only the last addition rounds them.
  bool direct = params.slices == 1 && operands->resultFormat == format::kF32;
  Value partial =
      direct ? result : builder.buffer("partial", "workspace", convPartialBytes(params));
  builder.launch(op, {"conv_weight_grad", convWeightGradUnits(params), 1, op.flops()},
                 {builder.symbols.builtin("conv_weight_grad_f32"),
                  {builder.bufferOf(operands->first), builder.bufferOf(operands->second)},
                  {partial},
                  convWeightGradWorkerBytes(params),
                  packParams(params),
                  {}});
  if (direct)
    return success();
  int64_t cols = graph::tensorType(op.getY()).getNumElements() / g.m;
  SumSlicesParams sum{g.m,
                      cols,
                      params.slices,
                      cols,
                      0,
                      std::max<int64_t>(1, (g.m + 7) / 8),
                      operands->resultFormat};
  builder.launch(op, {"sum slices", sumSlicesUnits(sum), 1, 0},
                 {builder.symbols.builtin("sum_slices_f32"),
                  {partial},
                  {result},
                  0,
                  packParams(sum),
                  {}});
  return success();
}

} // namespace sluice
