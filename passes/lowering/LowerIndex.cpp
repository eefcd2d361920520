// Gathers, scatters, positions of extrema and running sums.

#include "kernels/Params.h"
#include "passes/ContractShape.h"
#include "passes/NarrowReads.h"
#include "passes/lowering/Lowerings.h"

#include <numeric>

using namespace mlir;

namespace sluice {
namespace {

int64_t product(ArrayRef<int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}
int64_t bytesOfElement(Value value) {
  return plan::elementBytes(graph::tensorType(value).getElementType());
}

/// [outer, size, inner] around an axis.
struct AxisSplit {
  int64_t outer, size, inner;
  AxisSplit(ArrayRef<int64_t> shape, int64_t axis)
      : outer(product(shape.take_front(axis))), size(shape[axis]),
        inner(product(shape.drop_front(axis + 1))) {}
};

template <typename Params>
void launch(Operation *op, StringRef kernel, ValueRange ins, Value out, int64_t units,
            const Params &params, ProgramBuilder &builder) {
  StageSpec stage;
  stage.kernel = builder.symbols.builtin(kernel);
  for (Value in : ins)
    stage.ins.push_back(builder.bufferOf(in));
  stage.outs = {out};
  stage.params = packParams(params);
  builder.launch(op, {op->getName().stripDialect().str(), units, 1, 0}, stage);
}

/// Unused trailing dimensions stay 1.
void setDims(int64_t (&to)[kMaxRank], ArrayRef<int64_t> from) {
  std::copy(from.begin(), from.end(), to);
}

LogicalResult expectRank(Operation *op, int64_t rank) {
  if (rank <= kMaxRank)
    return success();
  return op->emitError("'") << op->getName() << "' of rank " << rank
                            << " has no kernel yet, the largest rank is " << kMaxRank;
}

bool isEmpty(Value value) { return graph::tensorType(value).getNumElements() == 0; }

} // namespace

LogicalResult lowerGather(graph::GatherOp op, ProgramBuilder &builder) {
  Value y = builder.destination(op.getY());
  if (isEmpty(op.getY()))
    return success();
  AxisSplit split(graph::tensorType(op.getX()).getShape(), op.getAxis());
  GatherParams params;
  params.elementBytes = bytesOfElement(op.getX());
  params.indexBytes = bytesOfElement(op.getIndices());
  params.outer = split.outer, params.axis = split.size, params.inner = split.inner;
  params.count = graph::tensorType(op.getIndices()).getNumElements();
  params.unitRows = gatherUnitRows(params);
  launch(op, "gather", {op.getX(), op.getIndices()}, y, gatherUnits(params), params,
         builder);
  return success();
}

LogicalResult lowerScatterAdd(graph::ScatterAddOp op, ProgramBuilder &builder) {
  if (failed(expectF32(op, op.getUpdates())))
    return failure();
  Value y = builder.destination(op.getY()), updates = narrowSource(op.getUpdates());
  if (isEmpty(op.getY()))
    return success();
  AxisSplit split(graph::tensorType(op.getY()).getShape(), op.getAxis());
  ScatterAddParams params;
  params.updatesType = *formatOf(graph::tensorType(updates).getElementType());
  params.indexBytes = bytesOfElement(op.getIndices());
  params.outer = split.outer, params.axis = split.size, params.inner = split.inner;
  params.count = graph::tensorType(op.getIndices()).getNumElements();
  params.unitCols = scatterAddUnitCols(params);
  params.unitRows = scatterAddUnitRows(params);
  launch(op, "scatter_add_f32", {op.getIndices(), updates}, y, scatterAddUnits(params),
         params, builder);
  return success();
}

LogicalResult lowerGatherElements(graph::GatherElementsOp op, ProgramBuilder &builder) {
  auto x = graph::tensorType(op.getX()), y = graph::tensorType(op.getY());
  if (failed(expectRank(op, y.getRank())))
    return failure();
  Value out = builder.destination(op.getY());
  if (isEmpty(op.getY()))
    return success();
  GatherElementsParams params;
  params.elementBytes = bytesOfElement(op.getX());
  params.indexBytes = bytesOfElement(op.getIndices());
  params.axis = op.getAxis(), params.axisSize = x.getDimSize(op.getAxis());
  setDims(params.dims, y.getShape());
  setDims(params.xStride, rowMajorStrides(x.getShape()));
  params.unitRows = gatherElementsUnitRows(params);
  launch(op, "gather_elements", {op.getX(), op.getIndices()}, out,
         gatherElementsUnits(params), params, builder);
  return success();
}

LogicalResult lowerScatterElements(graph::ScatterElementsOp op, ProgramBuilder &builder) {
  auto x = graph::tensorType(op.getX()), updates = graph::tensorType(op.getUpdates());
  if (failed(expectRank(op, x.getRank())))
    return failure();
  if (op.getReduction() != "none" && failed(expectF32(op, op.getX())))
    return failure();
  Value out = builder.destination(op.getY());
  if (isEmpty(op.getY()))
    return success();
  builder.copy(op, builder.bufferOf(op.getX()), out, x.getNumElements(),
               bytesOfElement(op.getX()));
  if (isEmpty(op.getUpdates()))
    return success();
  ScatterElementsParams params;
  params.elementBytes = bytesOfElement(op.getX());
  params.indexBytes = bytesOfElement(op.getIndices());
  params.axis = op.getAxis(), params.axisSize = x.getDimSize(op.getAxis());
  setDims(params.dims, updates.getShape());
  setDims(params.yStride, rowMajorStrides(x.getShape()));
  std::string kernel = "scatter_elements";
  if (op.getReduction() != "none")
    kernel += "_" + op.getReduction().str() + "_f32";
  launch(op, kernel, {op.getIndices(), op.getUpdates()}, out,
         scatterElementsUnits(params), params, builder);
  return success();
}

LogicalResult lowerArgMax(graph::ArgMaxOp op, ProgramBuilder &builder) {
  bool integers = graph::tensorType(op.getX()).getElementType().isInteger(64);
  if (!integers && failed(expectF32(op, op.getX())))
    return failure();
  Value y = builder.destination(op.getY());
  if (isEmpty(op.getY()))
    return success();
  AxisSplit split(graph::tensorType(op.getX()).getShape(), op.getAxis());
  ArgReduceParams params;
  params.outer = split.outer, params.size = split.size, params.inner = split.inner;
  params.xOuter = split.size * split.inner, params.xAxis = split.inner;
  params.xInner = 1;
  params.minimum = op.getMinimum(), params.last = op.getLast();
  params.unitElements = argReduceUnitElements(params);
  launch(op, integers ? "arg_reduce_i64" : "arg_reduce_f32", {op.getX()}, y,
         argReduceUnits(params), params, builder);
  return success();
}

LogicalResult lowerCumSum(graph::CumSumOp op, ProgramBuilder &builder) {
  bool integers = graph::tensorType(op.getX()).getElementType().isInteger(64);
  if (!integers && failed(expectF32(op, op.getX())))
    return failure();
  Value y = builder.destination(op.getY());
  if (isEmpty(op.getY()))
    return success();
  AxisSplit split(graph::tensorType(op.getX()).getShape(), op.getAxis());
  CumsumParams params;
  params.outer = split.outer, params.size = split.size, params.inner = split.inner;
  params.exclusive = op.getExclusive(), params.reverse = op.getReverse();
  params.unitLines = cumsumUnitLines(params);
  launch(op, integers ? "cumsum_i64" : "cumsum_f32", {op.getX()}, y, cumsumUnits(params),
         params, builder);
  return success();
}

} // namespace sluice
