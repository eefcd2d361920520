// Views and rearrangements: inference, folding and reference evaluation.
#include "ir/graph/Graph.h"
#include "ir/graph/Interpreter.h"
#include "ir/graph/Shapes.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

using namespace mlir;
using namespace sluice::graph;

#define GET_OP_CLASSES
#include "ir/graph/Shape.cpp.inc"

namespace {

/// y[i] = x[offset(i)] in row-major order of y, where offsets are `start` plus strides.
void copyStrided(const HostTensor &x, HostTensor &y, ArrayRef<int64_t> strides,
                 int64_t start) {
  int64_t i = 0;
  if (x.isReal())
    forEachOffset(y.shape, strides, start,
                  [&](int64_t from) { y.reals[i++] = x.reals[from]; });
  else
    forEachOffset(y.shape, strides, start,
                  [&](int64_t from) { y.integers[i++] = x.integers[from]; });
}

/// y[offset(i)] = x[i] in row-major order of x.
void placeStrided(const HostTensor &x, HostTensor &y, ArrayRef<int64_t> strides,
                  int64_t start) {
  int64_t i = 0;
  if (x.isReal())
    forEachOffset(x.shape, strides, start,
                  [&](int64_t to) { y.reals[to] = x.reals[i++]; });
  else
    forEachOffset(x.shape, strides, start,
                  [&](int64_t to) { y.integers[to] = x.integers[i++]; });
}

void setType(SmallVectorImpl<Type> &types, ArrayRef<int64_t> shape,
             RankedTensorType like) {
  types.push_back(RankedTensorType::get(shape, like.getElementType()));
}

bool isIdentity(ArrayRef<int64_t> permutation) {
  for (auto [i, dimension] : llvm::enumerate(permutation))
    if (dimension != static_cast<int64_t>(i))
      return false;
  return true;
}

} // namespace

// --- reshape

LogicalResult ReshapeOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                          Adaptor adaptor, SmallVectorImpl<Type> &types) {
  StringRef op = getOperationName();
  RankedTensorType x = operandType(op, loc, adaptor.getOperands(), 0);
  if (!x || failed(checkAtLeast(op, loc, "shape", adaptor.getShape(), 0)))
    return failure();
  if (product(adaptor.getShape()) != x.getNumElements())
    return emitOptionalError(loc, "operand 0 of '", op, "' has ", x.getNumElements(),
                             " elements, expected ", product(adaptor.getShape()),
                             " (shape ", listText(adaptor.getShape()), ")");
  setType(types, adaptor.getShape(), x);
  return success();
}

OpFoldResult ReshapeOp::fold(FoldAdaptor) {
  if (getX().getType() == getY().getType())
    return getX();
  if (auto inner = getX().getDefiningOp<ReshapeOp>()) { // the outer shape alone counts
    if (inner.getX().getType() == getY().getType())
      return inner.getX();
    getXMutable().assign(inner.getX());
    return getResult();
  }
  return {};
}

LogicalResult ReshapeOp::evaluate(Evaluation &eval) {
  eval.result(0).reals = eval.operand(0).reals;
  eval.result(0).integers = eval.operand(0).integers;
  return success();
}

// --- transpose

LogicalResult TransposeOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                            Adaptor adaptor,
                                            SmallVectorImpl<Type> &types) {
  StringRef op = getOperationName();
  RankedTensorType x = operandType(op, loc, adaptor.getOperands(), 0);
  ArrayRef<int64_t> permutation = adaptor.getPermutation();
  if (!x || failed(checkLength(op, loc, "permutation", permutation, x.getRank())) ||
      failed(checkDimensions(op, loc, "permutation", permutation, x.getRank())))
    return failure();
  SmallVector<int64_t> shape;
  for (int64_t dimension : permutation)
    shape.push_back(x.getDimSize(dimension));
  setType(types, shape, x);
  return success();
}

OpFoldResult TransposeOp::fold(FoldAdaptor) {
  if (isIdentity(getPermutation()))
    return getX();
  auto inner = getX().getDefiningOp<TransposeOp>();
  if (!inner)
    return {};
  SmallVector<int64_t> composed;
  for (int64_t dimension : getPermutation())
    composed.push_back(inner.getPermutation()[dimension]);
  if (isIdentity(composed))
    return inner.getX();
  setPermutation(composed);
  getXMutable().assign(inner.getX());
  return getResult();
}

LogicalResult TransposeOp::evaluate(Evaluation &eval) {
  SmallVector<int64_t> from = stridesOf(eval.operand(0).shape), strides;
  for (int64_t dimension : getPermutation())
    strides.push_back(from[dimension]);
  copyStrided(eval.operand(0), eval.result(0), strides, 0);
  return success();
}

// --- broadcast

LogicalResult BroadcastOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                            Adaptor adaptor,
                                            SmallVectorImpl<Type> &types) {
  StringRef op = getOperationName();
  RankedTensorType x = operandType(op, loc, adaptor.getOperands(), 0);
  ArrayRef<int64_t> shape = adaptor.getShape();
  if (!x || failed(checkAtLeast(op, loc, "shape", shape, 0)))
    return failure();
  const int64_t added = static_cast<int64_t>(shape.size()) - x.getRank();
  bool fits = added >= 0;
  for (int64_t i = 0; fits && i < x.getRank(); ++i)
    fits = x.getDimSize(i) == 1 || x.getDimSize(i) == shape[added + i];
  if (!fits)
    return emitOptionalError(
        loc, "operand 0 of '", op, "' has shape ", listText(x.getShape()),
        ", which does not repeat to ", listText(shape),
        " (aligned at the last dimension, sizes must be equal or 1)");
  setType(types, shape, x);
  return success();
}

OpFoldResult BroadcastOp::fold(FoldAdaptor) {
  if (getX().getType() == getY().getType())
    return getX();
  if (auto inner = getX().getDefiningOp<BroadcastOp>()) {
    getXMutable().assign(inner.getX());
    return getResult();
  }
  return {};
}

LogicalResult BroadcastOp::evaluate(Evaluation &eval) {
  const HostTensor &x = eval.operand(0);
  SmallVector<int64_t> from = stridesOf(x.shape), strides(getShape().size(), 0);
  const size_t added = strides.size() - from.size();
  for (size_t i = 0; i < from.size(); ++i)
    strides[added + i] = x.shape[i] == 1 ? 0 : from[i];
  copyStrided(x, eval.result(0), strides, 0);
  return success();
}

// --- slice

LogicalResult SliceOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                        Adaptor adaptor, SmallVectorImpl<Type> &types) {
  StringRef op = getOperationName();
  RankedTensorType x = operandType(op, loc, adaptor.getOperands(), 0);
  ArrayRef<int64_t> starts = adaptor.getStarts(), sizes = adaptor.getSizes(),
                    steps = adaptor.getSteps();
  if (!x || failed(checkLength(op, loc, "starts", starts, x.getRank())) ||
      failed(checkLength(op, loc, "sizes", sizes, x.getRank())) ||
      failed(checkLength(op, loc, "steps", steps, x.getRank())) ||
      failed(checkAtLeast(op, loc, "sizes", sizes, 0)))
    return failure();
  for (int64_t i = 0; i < x.getRank(); ++i) {
    if (steps[i] == 0)
      return emitOptionalError(loc, "entry ", i, " of 'steps' of '", op,
                               "' is 0, expected another");
    if (sizes[i] == 0)
      continue;
    const int64_t last = starts[i] + (sizes[i] - 1) * steps[i], limit = x.getDimSize(i);
    if (starts[i] < 0 || starts[i] >= limit || last < 0 || last >= limit)
      return emitOptionalError(loc, "'", op, "' takes elements ", starts[i], " to ", last,
                               " of dimension ", i, " of operand 0, expected 0 to ",
                               limit - 1);
  }
  setType(types, sizes, x);
  return success();
}

OpFoldResult SliceOp::fold(FoldAdaptor) {
  const bool forward = llvm::all_of(getSteps(), [](int64_t step) { return step == 1; });
  if (forward && getX().getType() == getY().getType())
    return getX();
  auto inner = getX().getDefiningOp<SliceOp>();
  if (!inner || tensorType(getY()).getNumElements() == 0)
    return {};
  SmallVector<int64_t> starts, steps;
  for (size_t i = 0; i < getStarts().size(); ++i) {
    starts.push_back(inner.getStarts()[i] + getStarts()[i] * inner.getSteps()[i]);
    steps.push_back(getSteps()[i] * inner.getSteps()[i]);
  }
  setStarts(starts);
  setSteps(steps);
  getXMutable().assign(inner.getX());
  return getResult();
}

LogicalResult SliceOp::evaluate(Evaluation &eval) {
  SmallVector<int64_t> strides = stridesOf(eval.operand(0).shape);
  int64_t start = 0;
  for (size_t i = 0; i < strides.size(); ++i) {
    start += strides[i] * getStarts()[i];
    strides[i] *= getSteps()[i];
  }
  copyStrided(eval.operand(0), eval.result(0), strides, start);
  return success();
}

// --- pad

LogicalResult PadOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                      Adaptor adaptor, SmallVectorImpl<Type> &types) {
  StringRef op = getOperationName();
  RankedTensorType x = operandType(op, loc, adaptor.getOperands(), 0);
  ArrayRef<int64_t> low = adaptor.getLow(), high = adaptor.getHigh();
  if (!x || failed(checkLength(op, loc, "low", low, x.getRank())) ||
      failed(checkLength(op, loc, "high", high, x.getRank())) ||
      failed(checkAtLeast(op, loc, "low", low, 0)) ||
      failed(checkAtLeast(op, loc, "high", high, 0)))
    return failure();
  SmallVector<int64_t> shape(x.getShape());
  for (size_t i = 0; i < shape.size(); ++i)
    shape[i] += low[i] + high[i];
  setType(types, shape, x);
  return success();
}

LogicalResult PadOp::evaluate(Evaluation &eval) {
  HostTensor &y = eval.result(0);
  const double value = getValue().convertToDouble();
  std::fill(y.reals.begin(), y.reals.end(), eval.round(value));
  if (!y.integers.empty()) // of reals the value may be infinite
    std::fill(y.integers.begin(), y.integers.end(), static_cast<int64_t>(value));
  SmallVector<int64_t> strides = stridesOf(y.shape);
  int64_t start = 0;
  for (size_t i = 0; i < strides.size(); ++i)
    start += strides[i] * getLow()[i];
  placeStrided(eval.operand(0), y, strides, start);
  return success();
}

// --- concat

LogicalResult ConcatOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                         Adaptor adaptor, SmallVectorImpl<Type> &types) {
  StringRef op = getOperationName();
  ValueRange inputs = adaptor.getOperands();
  RankedTensorType first = operandType(op, loc, inputs, 0);
  const int64_t axis = adaptor.getAxis();
  if (!first || failed(checkRange(op, loc, "axis", axis, first.getRank())))
    return failure();
  SmallVector<int64_t> shape(first.getShape());
  for (unsigned i = 1; i < inputs.size(); ++i) {
    RankedTensorType type = operandType(op, loc, inputs, i);
    if (!type)
      return failure();
    bool fits = type.getElementType() == first.getElementType() &&
                type.getRank() == first.getRank();
    for (int64_t d = 0; fits && d < first.getRank(); ++d)
      fits = d == axis || type.getDimSize(d) == shape[d];
    if (!fits)
      return emitOptionalError(loc, "operand ", i, " of '", op, "' has type ", type,
                               ", expected ", first, " but for dimension ", axis,
                               " (type of operand 0)");
    shape[axis] += type.getDimSize(axis);
  }
  setType(types, shape, first);
  return success();
}

LogicalResult ConcatOp::evaluate(Evaluation &eval) {
  HostTensor &y = eval.result(0);
  const int64_t axis = getAxis();
  SmallVector<int64_t> strides = stridesOf(y.shape);
  int64_t position = 0;
  for (unsigned i = 0; i < getInputs().size(); ++i) {
    placeStrided(eval.operand(i), y, strides, position * strides[axis]);
    position += eval.operand(i).shape[axis];
  }
  return success();
}

// --- precision

PrecisionKind ReshapeOp::precision() { return PrecisionKind::Moves; }
PrecisionKind TransposeOp::precision() { return PrecisionKind::Moves; }
PrecisionKind BroadcastOp::precision() { return PrecisionKind::Moves; }
PrecisionKind SliceOp::precision() { return PrecisionKind::Moves; }
PrecisionKind ConcatOp::precision() { return PrecisionKind::Moves; }
/// What surrounds the elements must be the same in every format.
PrecisionKind PadOp::precision() {
  double value = getValue().convertToDouble();
  return value == 0 || std::isinf(value) ? PrecisionKind::Moves : PrecisionKind::Wide;
}
