#include "passes/lowering/StridedView.h"

#include "passes/ContractShape.h"
#include "passes/lowering/Lowerings.h"

using namespace mlir;

namespace sluice {

std::optional<SmallVector<int64_t>> reshapeStrides(ArrayRef<int64_t> shape,
                                                   ArrayRef<int64_t> strides,
                                                   ArrayRef<int64_t> newShape) {
  if (llvm::is_contained(shape, 0))
    return std::nullopt;
  // Runs of dimensions that are evenly spaced as one.
  SmallVector<std::pair<int64_t, int64_t>> runs; // size, stride
  for (auto [size, stride] : llvm::zip(shape, strides)) {
    if (size == 1)
      continue;
    if (!runs.empty() && runs.back().second == size * stride)
      runs.back() = {runs.back().first * size, stride};
    else
      runs.push_back({size, stride});
  }
  SmallVector<int64_t> result(newShape.size(), 0);
  size_t dim = newShape.size();
  for (auto [size, stride] : llvm::reverse(runs)) {
    int64_t covered = 1;
    while (covered < size) {
      if (dim == 0)
        return std::nullopt;
      --dim;
      if (size % (covered * newShape[dim]) != 0)
        return std::nullopt;
      result[dim] = stride * covered;
      covered *= newShape[dim];
    }
  }
  return result;
}

StridedView contiguousView(Value value) {
  return {value, 0, rowMajorStrides(graph::tensorType(value).getShape())};
}

StridedView readView(Value value, const ProgramBuilder &builder) {
  if (const StridedView *place = builder.placeOf(value))
    return *place;
  Operation *op = value.getDefiningOp();
  if (!op || builder.find(value) || op->hasAttr(copyAttr))
    return contiguousView(value);
  if (auto transpose = dyn_cast<graph::TransposeOp>(op)) {
    StridedView from = readView(transpose.getX(), builder);
    StridedView view{from.root, from.offset, {}};
    for (int64_t dim : transpose.getPermutation())
      view.strides.push_back(from.strides[dim]);
    return view;
  }
  if (auto slice = dyn_cast<graph::SliceOp>(op)) {
    StridedView view = readView(slice.getX(), builder);
    if (llvm::any_of(slice.getSteps(), [](int64_t step) { return step < 0; }))
      return contiguousView(value);
    for (auto [i, start] : llvm::enumerate(slice.getStarts())) {
      view.offset += start * view.strides[i];
      view.strides[i] *= slice.getSteps()[i];
    }
    return view;
  }
  if (auto reshape = dyn_cast<graph::ReshapeOp>(op)) {
    StridedView from = readView(reshape.getX(), builder);
    auto strides = reshapeStrides(graph::tensorType(reshape.getX()).getShape(),
                                  from.strides, graph::tensorType(value).getShape());
    if (strides)
      return {from.root, from.offset, *strides};
  }
  return contiguousView(value);
}

StridedView writeView(Value value, const ProgramBuilder &builder, Operation *user) {
  if (builder.find(value) || (!user && !value.hasOneUse()))
    return contiguousView(value);
  user = user ? user : *value.user_begin();
  if (auto transpose = dyn_cast<graph::TransposeOp>(user)) {
    StridedView to = writeView(transpose.getY(), builder);
    StridedView view{to.root, to.offset, SmallVector<int64_t>(to.strides.size())};
    for (auto [i, dim] : llvm::enumerate(transpose.getPermutation()))
      view.strides[dim] = to.strides[i];
    return view;
  }
  if (auto reshape = dyn_cast<graph::ReshapeOp>(user)) {
    // A bound reshape is a copy; the rest of a chain is worth following only if it ends
    // in other strides.
    if (builder.find(reshape.getY()) || user->hasAttr(copyAttr))
      return contiguousView(value);
    StridedView to = writeView(reshape.getY(), builder);
    auto strides = reshapeStrides(graph::tensorType(reshape.getY()).getShape(),
                                  to.strides, graph::tensorType(value).getShape());
    if (strides && to.root != reshape.getY())
      return {to.root, to.offset, *strides};
  }
  if (auto concat = dyn_cast<graph::ConcatOp>(user)) {
    StridedView view = contiguousView(concat.getY());
    for (Value input : concat.getInputs()) {
      if (input == value)
        return view;
      view.offset += graph::tensorType(input).getDimSize(concat.getAxis()) *
                     view.strides[concat.getAxis()];
    }
  }
  return contiguousView(value);
}

Value bytesFrom(const StridedView &view, Value buffer, ProgramBuilder &builder) {
  int64_t begin =
      view.offset * plan::elementBytes(graph::tensorType(view.root).getElementType());
  return builder.slice(buffer, begin, plan::rangeOf(buffer).size - begin);
}

} // namespace sluice
