#include "passes/RegionAxes.h"

using namespace mlir;
using namespace sluice;

int AxisTable::create(int64_t size) {
  axes.push_back({size});
  return static_cast<int>(axes.size()) - 1;
}

Axes AxisTable::resolve(ArrayRef<int> list) const {
  Axes result;
  SmallVector<int> open(list.rbegin(), list.rend());
  while (!open.empty()) {
    int axis = open.pop_back_val();
    const Axis &entry = axes[axis];
    if (entry.same >= 0) {
      open.push_back(entry.same);
    } else if (entry.outer >= 0) {
      open.push_back(entry.inner);
      open.push_back(entry.outer);
    } else {
      result.push_back(axis);
    }
  }
  return result;
}

void AxisTable::split(int axis, int64_t outerSize) {
  int outer = create(outerSize), inner = create(axes[axis].size / outerSize);
  axes[axis].outer = outer;
  axes[axis].inner = inner;
}

LogicalResult AxisTable::unify(ArrayRef<int> a, ArrayRef<int> b) {
  // Every turn unifies or splits one axis; sizes shrink, so this ends.
  while (true) {
    Axes left = resolve(a), right = resolve(b);
    size_t i = 0;
    while (i < left.size() && i < right.size() && left[i] == right[i])
      ++i;
    if (i == left.size() || i == right.size())
      return success(left.size() == right.size());
    int64_t leftSize = size(left[i]), rightSize = size(right[i]);
    if (leftSize == rightSize) {
      axes[left[i]].same = right[i];
      continue;
    }
    if (leftSize == 0 || rightSize == 0)
      return failure();
    bool leftLarger = leftSize > rightSize;
    int64_t large = std::max(leftSize, rightSize), small = std::min(leftSize, rightSize);
    if (large % small != 0)
      return failure();
    split(leftLarger ? left[i] : right[i], small);
  }
}

Axes RegionAxes::flat(const TensorAxes &axes) const {
  Axes joined;
  for (const Axes &dim : axes)
    joined.append(dim);
  return table.resolve(joined);
}

bool sluice::isGenerated(Operation *op) {
  return isa_and_nonnull<graph::ConstantOp, graph::IotaOp>(op);
}

std::optional<int64_t> sluice::slicedDimension(graph::SliceOp slice) {
  ArrayRef<int64_t> from = graph::tensorType(slice.getX()).getShape();
  std::optional<int64_t> found;
  for (auto [dim, size] : llvm::enumerate(slice.getSizes())) {
    if (size != 1 && slice.getSteps()[dim] != 1)
      return std::nullopt;
    if (size == from[dim])
      continue;
    if (found || size < 2)
      return std::nullopt;
    found = dim;
  }
  return found;
}

namespace {
/// Builds a RegionAxes op by op.
class Assigner {
public:
  Assigner(ArrayRef<Operation *> ops, SharedInputs shared)
      : shared(shared), members(ops.begin(), ops.end()) {
    for (Operation *op : ops)
      for (Value operand : op->getOperands())
        if (auto type = dyn_cast<RankedTensorType>(operand.getType()))
          largestRank = std::max(largestRank, rankWithoutUnits(type));
  }

  LogicalResult add(Operation *op) {
    if (!llvm::all_of(op->getOperandTypes(), isSupported) ||
        !llvm::all_of(op->getResultTypes(), isSupported) || op->getNumResults() != 1)
      return failure();
    if (auto broadcast = dyn_cast<graph::BroadcastOp>(op))
      return addBroadcast(broadcast);
    if (auto reshape = dyn_cast<graph::ReshapeOp>(op))
      return addReshape(reshape);
    if (auto reduce = dyn_cast<graph::ReduceOp>(op))
      return addReduce(reduce);
    if (auto concat = dyn_cast<graph::ConcatOp>(op))
      return addConcat(concat);
    if (auto slice = dyn_cast<graph::SliceOp>(op))
      return addSlice(slice);
    if (isa<graph::IotaOp>(op))
      return addLeafResult(op);
    if (isa<graph::RandomUniformOp>(op)) {
      for (OpOperand &operand : op->getOpOperands())
        operandAxes(operand);
      return addLeafResult(op);
    }
    if (auto constant = dyn_cast<graph::ConstantOp>(op))
      return success(constant.getValue().isSplat() && succeeded(addLeafResult(op)));
    if (isa<graph::Elementwise>(op))
      return addElementwise(op);
    return failure();
  }

  RegionAxes result;

private:
  static bool isSupported(Type type) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!tensor)
      return false;
    Type element = tensor.getElementType();
    if (auto integer = dyn_cast<IntegerType>(element))
      return llvm::is_contained({1u, 8u, 16u, 32u, 64u}, integer.getWidth());
    return element.isF32() || element.isF64() || element.isF16() || element.isBF16();
  }

  TensorAxes fresh(RankedTensorType type) {
    TensorAxes axes;
    for (int64_t size : type.getShape()) {
      axes.emplace_back();
      if (size != 1)
        axes.back().push_back(result.table.create(size));
    }
    return axes;
  }

  static int64_t rankWithoutUnits(RankedTensorType type) {
    return llvm::count_if(type.getShape(), [](int64_t size) { return size != 1; });
  }

  bool isMember(Value value) const { return members.contains(value.getDefiningOp()); }

  bool isShared(Value input) const {
    return shared == SharedInputs::All ||
           (shared == SharedInputs::Large &&
            rankWithoutUnits(graph::tensorType(input)) == largestRank);
  }

  const TensorAxes &operandAxes(OpOperand &operand) {
    Value value = operand.get();
    Operation *producer = value.getDefiningOp();
    bool inside = producer && members.contains(producer);
    if (inside && !isGenerated(producer))
      return result.values.find(value)->second;
    bool sharesIota =
        isa_and_nonnull<graph::IotaOp>(producer) && shared == SharedInputs::All;
    if (inside ? !sharesIota : !isShared(value))
      return result.leaves[&operand] = fresh(graph::tensorType(value));
    auto [axes, isNew] = inputs.try_emplace(value);
    if (isNew)
      axes->second = fresh(graph::tensorType(value));
    return result.leaves[&operand] = axes->second;
  }

  LogicalResult addLeafResult(Operation *op) {
    result.values[op->getResult(0)] = fresh(graph::tensorType(op->getResult(0)));
    return success();
  }

  LogicalResult addElementwise(Operation *op) {
    auto rank = static_cast<size_t>(graph::tensorType(op->getResult(0)).getRank());
    TensorAxes first;
    for (OpOperand &operand : op->getOpOperands()) {
      TensorAxes axes = operandAxes(operand);
      if (axes.size() != rank)
        return failure();
      if (operand.getOperandNumber() == 0)
        first = axes;
      for (size_t dim = 0; dim < rank; ++dim)
        if (failed(result.table.unify(first[dim], axes[dim])))
          return failure();
    }
    result.values[op->getResult(0)] = first;
    return success();
  }

  LogicalResult addBroadcast(graph::BroadcastOp op) {
    TensorAxes from = operandAxes(op->getOpOperand(0));
    TensorAxes to = fresh(graph::tensorType(op.getY()));
    ArrayRef<int64_t> small = graph::tensorType(op.getX()).getShape();
    ArrayRef<int64_t> large = graph::tensorType(op.getY()).getShape();
    for (size_t i = 1; i <= small.size(); ++i)
      if (small[small.size() - i] == large[large.size() - i])
        to[to.size() - i] = from[from.size() - i];
    result.values[op.getY()] = to;
    return success();
  }

  LogicalResult addReshape(graph::ReshapeOp op) {
    TensorAxes from = operandAxes(op->getOpOperand(0));
    TensorAxes to = fresh(graph::tensorType(op.getY()));
    if (failed(result.table.unify(result.flat(from), result.flat(to))))
      return failure();
    result.values[op.getY()] = to;
    return success();
  }

  /// Tensors in memory that are read as one.
  LogicalResult addConcat(graph::ConcatOp op) {
    int64_t dim = op.getAxis();
    TensorAxes to = fresh(graph::tensorType(op.getY()));
    if (to[dim].empty())
      return failure();
    int64_t start = 0;
    for (OpOperand &operand : op->getOpOperands()) {
      int64_t extent = graph::tensorType(operand.get()).getDimSize(dim);
      if (isMember(operand.get()) || extent == 0)
        return failure();
      result.leaves[&operand] = to;
      result.windows[&operand] = {to[dim].front(), extent, -start, /*isPiece=*/true};
      start += extent;
    }
    result.values[op.getY()] = to;
    return success();
  }

  /// A part of a tensor in memory.
  LogicalResult addSlice(graph::SliceOp op) {
    std::optional<int64_t> dim = slicedDimension(op);
    if (!dim || isMember(op.getX()))
      return failure();
    OpOperand &operand = op->getOpOperand(0);
    TensorAxes to = fresh(graph::tensorType(op.getY()));
    result.leaves[&operand] = to;
    result.windows[&operand] = {to[*dim].front(),
                                graph::tensorType(op.getX()).getDimSize(*dim),
                                op.getStarts()[*dim], /*isPiece=*/false};
    result.values[op.getY()] = to;
    return success();
  }

  LogicalResult addReduce(graph::ReduceOp op) {
    if (graph::tensorType(op.getX()).getElementType().isInteger(1))
      return failure();
    TensorAxes from = operandAxes(op->getOpOperand(0)), to;
    Axes &reduced = result.reduced[op];
    for (size_t dim = 0; dim < from.size(); ++dim) {
      if (!llvm::is_contained(op.getAxes(), static_cast<int64_t>(dim))) {
        to.push_back(from[dim]);
        continue;
      }
      reduced.append(from[dim]);
      if (op.getKeep())
        to.emplace_back();
    }
    result.values[op.getY()] = to;
    return success();
  }

  SharedInputs shared;
  llvm::SmallPtrSet<Operation *, 16> members;
  int64_t largestRank = 0;
  llvm::DenseMap<Value, TensorAxes> inputs;
};
} // namespace

FailureOr<RegionAxes> sluice::assignAxes(ArrayRef<Operation *> ops, SharedInputs shared) {
  Assigner assigner(ops, shared);
  for (Operation *op : ops)
    if (failed(assigner.add(op)))
      return failure();
  return std::move(assigner.result);
}
