// Operations that move elements: views where the bytes already lie right, else strided
// copies.

#include "kernels/Params.h"
#include "passes/ContractShape.h"
#include "passes/lowering/Lowerings.h"

using namespace mlir;

namespace sluice {
namespace {

/// A copy between two contiguous tensors: `dims` elements from `inOffset` with
/// `inStrides` to `outOffset` with `outStrides`.
struct StridedCopy {
  SmallVector<int64_t> dims, inStrides, outStrides;
  int64_t inOffset = 0, outOffset = 0;
};

void launchCopy(Operation *op, const StridedCopy &copy, Value in, Value out,
                ProgramBuilder &builder) {
  if (llvm::is_contained(copy.dims, 0))
    return;
  int64_t bytes =
      plan::elementBytes(graph::tensorType(op->getResult(0)).getElementType());
  CopyParams params =
      planCopy(bytes, copy.dims.size(), copy.dims.data(), copy.inStrides.data(),
               copy.inOffset, copy.outStrides.data(), copy.outOffset);
  double moved = bytes; // read, and then written
  for (int64_t size : copy.dims)
    moved *= size;
  double untouched = plan::rangeOf(in).size + plan::rangeOf(out).size - 2 * moved;
  builder.launch(
      op, {op->getName().stripDialect().str(), copyUnits(params), 1, 0, {}, untouched},
      {builder.symbols.builtin("copy_strided"), {in}, {out}, 0, packParams(params), {}});
}

LogicalResult expectRank(Operation *op, int64_t rank) {
  if (rank <= kMaxRank)
    return success();
  return op->emitError("'") << op->getName() << "' of rank " << rank
                            << " has no kernel yet, the largest rank is " << kMaxRank;
}

/// Offset in elements of a slice that is one run of its operand, or nothing.
std::optional<int64_t> contiguousSlice(graph::SliceOp op) {
  ArrayRef<int64_t> shape = graph::tensorType(op.getX()).getShape();
  SmallVector<int64_t> strides = rowMajorStrides(shape);
  int64_t offset = 0;
  bool partial = false; // a dimension behind is cut, so those before must be single
  for (size_t i = shape.size(); i-- > 0;) {
    int64_t size = op.getSizes()[i];
    offset += op.getStarts()[i] * strides[i];
    if (size > 1 && (partial || op.getSteps()[i] != 1))
      return std::nullopt;
    partial |= size != shape[i];
  }
  return offset;
}

} // namespace

std::optional<int64_t> sliceOffsetBytes(graph::SliceOp op) {
  std::optional<int64_t> offset = contiguousSlice(op);
  int64_t bytes = plan::elementBytes(graph::tensorType(op.getX()).getElementType());
  // A view must keep the alignment of a line.
  if (!offset || *offset * bytes % 64 != 0)
    return std::nullopt;
  return *offset * bytes;
}

LogicalResult lowerReshape(graph::ReshapeOp op, ProgramBuilder &builder) {
  // A product has written the result, or that of what uses it.
  if (builder.isWritten(op.getX())) {
    if (!builder.find(op.getY()))
      builder.markWritten(op.getY());
    return success();
  }
  Value from = builder.bufferOf(op.getX());
  Value bound = builder.find(op.getY());
  if (!bound && !op->hasAttr(copyAttr)) {
    builder.bind(op.getY(), from);
    return success();
  }
  auto type = graph::tensorType(op.getY());
  if (type.getNumElements() > 0)
    builder.copy(op, from, builder.destination(op.getY()), type.getNumElements(),
                 plan::elementBytes(type.getElementType()));
  return success();
}

LogicalResult lowerTranspose(graph::TransposeOp op, ProgramBuilder &builder) {
  // A product has written the result, or that of what uses it.
  if (builder.isWritten(op.getX())) {
    if (!builder.find(op.getY()))
      builder.markWritten(op.getY());
    return success();
  }
  auto from = graph::tensorType(op.getX()), to = graph::tensorType(op.getY());
  if (failed(expectRank(op, to.getRank())))
    return failure();
  StridedCopy copy;
  SmallVector<int64_t> strides = rowMajorStrides(from.getShape());
  copy.dims.assign(to.getShape().begin(), to.getShape().end());
  for (int64_t dim : op.getPermutation())
    copy.inStrides.push_back(strides[dim]);
  copy.outStrides = rowMajorStrides(to.getShape());
  launchCopy(op, copy, builder.bufferOf(op.getX()), builder.destination(op.getY()),
             builder);
  return success();
}

LogicalResult lowerSlice(graph::SliceOp op, ProgramBuilder &builder) {
  auto from = graph::tensorType(op.getX()), to = graph::tensorType(op.getY());
  if (failed(expectRank(op, to.getRank())))
    return failure();
  Value source = builder.bufferOf(op.getX());
  std::optional<int64_t> offset = sliceOffsetBytes(op);
  if (!builder.find(op.getY()) && offset) {
    builder.bind(op.getY(), builder.slice(source, *offset, plan::tensorBytes(to)));
    return success();
  }
  StridedCopy copy;
  SmallVector<int64_t> strides = rowMajorStrides(from.getShape());
  copy.dims.assign(to.getShape().begin(), to.getShape().end());
  for (auto [i, stride] : llvm::enumerate(strides)) {
    copy.inStrides.push_back(stride * op.getSteps()[i]);
    copy.inOffset += stride * op.getStarts()[i];
  }
  copy.outStrides = rowMajorStrides(to.getShape());
  launchCopy(op, copy, source, builder.destination(op.getY()), builder);
  return success();
}

LogicalResult lowerPad(graph::PadOp op, ProgramBuilder &builder) {
  auto from = graph::tensorType(op.getX()), to = graph::tensorType(op.getY());
  if (failed(expectRank(op, to.getRank())))
    return failure();
  Value out = builder.destination(op.getY());
  Type element = to.getElementType();
  double value = op.getValue().convertToDouble();
  Attribute filler = isa<FloatType>(element)
                         ? Attribute(FloatAttr::get(element, value))
                         : IntegerAttr::get(element, static_cast<int64_t>(value));
  lowerFill(op, out, to, filler, builder);
  StridedCopy copy;
  copy.dims.assign(from.getShape().begin(), from.getShape().end());
  copy.inStrides = rowMajorStrides(from.getShape());
  copy.outStrides = rowMajorStrides(to.getShape());
  for (auto [stride, low] : llvm::zip(copy.outStrides, op.getLow()))
    copy.outOffset += stride * low;
  launchCopy(op, copy, builder.bufferOf(op.getX()), out, builder);
  return success();
}

LogicalResult lowerConcat(graph::ConcatOp op, ProgramBuilder &builder) {
  auto to = graph::tensorType(op.getY());
  if (failed(expectRank(op, to.getRank())))
    return failure();
  Value out = builder.destination(op.getY());
  StridedCopy copy;
  copy.outStrides = rowMajorStrides(to.getShape());
  for (Value input : op.getInputs()) {
    ArrayRef<int64_t> shape = graph::tensorType(input).getShape();
    copy.dims.assign(shape.begin(), shape.end());
    copy.inStrides = rowMajorStrides(shape);
    if (!builder.isWritten(input))
      launchCopy(op, copy, builder.bufferOf(input), out, builder);
    copy.outOffset += shape[op.getAxis()] * copy.outStrides[op.getAxis()];
  }
  return success();
}

void lowerFill(Operation *op, Value buffer, RankedTensorType type, Attribute element,
               ProgramBuilder &builder) {
  FillParams params;
  params.elementBytes = plan::elementBytes(type.getElementType());
  params.count = type.getNumElements();
  APInt bits = isa<FloatAttr>(element)
                   ? cast<FloatAttr>(element).getValue().bitcastToAPInt()
                   : cast<IntegerAttr>(element).getValue();
  params.bits = static_cast<int64_t>(bits.zextOrTrunc(64).getZExtValue());
  builder.launch(
      op, {"fill", fillUnits(params), 1, 0},
      {builder.symbols.builtin("fill"), {}, {buffer}, 0, packParams(params), {}});
}

LogicalResult lowerConstant(graph::ConstantOp op, ProgramBuilder &builder) {
  Value bound = builder.find(op.getResult());
  if (!bound) {
    builder.bind(op.getResult(), builder.stateBuffer(builder.symbols.constant(op)));
    return success();
  }
  auto type = graph::tensorType(op.getResult());
  auto dense = dyn_cast<DenseElementsAttr>(op.getValue());
  if (dense && dense.isSplat()) {
    lowerFill(op, bound, type, dense.getSplatValue<Attribute>(), builder);
    return success();
  }
  builder.copy(op, builder.stateBuffer(builder.symbols.constant(op)), bound,
               type.getNumElements(), plan::elementBytes(type.getElementType()));
  return success();
}

} // namespace sluice
