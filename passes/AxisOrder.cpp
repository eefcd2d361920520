#include "passes/AxisOrder.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace sluice;

DimMask AxisOrder::mask(ArrayRef<int> list) const {
  DimMask mask = 0;
  for (int axis : list)
    mask |= DimMask{1} << position.find(axis)->second;
  return mask;
}

namespace {
constexpr size_t maxAxes = 32; // bits of a DimMask

class Orderer {
public:
  Orderer(ArrayRef<Operation *> ops, ArrayRef<Value> outputs, RegionAxes &axes)
      : axes(axes) {
    for (Operation *op : ops) {
      // A constant or iota lies where it is used, unless it is an output itself.
      if (!isGenerated(op) || llvm::is_contained(outputs, op->getResult(0)))
        tensors.push_back(axes.values.find(op->getResult(0))->second);
      for (OpOperand &operand : op->getOpOperands())
        if (auto leaf = axes.leaves.find(&operand); leaf != axes.leaves.end())
          tensors.push_back(leaf->second);
    }
  }

  FailureOr<AxisOrder> run() {
    if (failed(takeLargest()))
      return failure();
    for (const TensorAxes &tensor : tensors)
      identify(axes.flat(tensor));
    if (failed(takeLargest()) ||
        !llvm::all_of(tensors, [&](const TensorAxes &t) { return fits(axes.flat(t)); }))
      return failure();
    return order;
  }

private:
  LogicalResult takeLargest() {
    order = AxisOrder();
    for (const TensorAxes &tensor : tensors)
      if (Axes list = axes.flat(tensor); list.size() > order.axes.size())
        order.axes = list;
    if (order.axes.size() > maxAxes)
      return failure();
    for (auto [i, axis] : llvm::enumerate(order.axes))
      if (!order.position.try_emplace(axis, i).second)
        return failure();
    return success();
  }

  // A row that is only summed up here and a row that is scaled there: axes that are not
  // in the order become those of the same size at a place that keeps the order.
  void identify(const Axes &list) {
    Axes known = axes.table.resolve(order.axes);
    size_t next = 0; // first place in the order that is still free
    for (size_t i = 0; i < list.size(); ++i) {
      auto found = llvm::find(known, list[i]);
      if (found != known.end()) {
        next = found - known.begin() + 1;
        continue;
      }
      // Not behind the place of the next axis that has one.
      size_t limit = known.size();
      for (size_t j = i + 1; j < list.size() && limit == known.size(); ++j)
        limit = llvm::find(known, list[j]) - known.begin();
      while (next < limit && axes.table.size(known[next]) != axes.table.size(list[i]))
        ++next;
      if (next >= limit || failed(axes.table.unify(list[i], known[next])))
        return;
      ++next;
    }
  }

  bool fits(const Axes &list) const {
    int last = -1;
    for (int axis : list) {
      auto found = order.position.find(axis);
      if (found == order.position.end() || static_cast<int>(found->second) <= last)
        return false;
      last = static_cast<int>(found->second);
    }
    return true;
  }

  RegionAxes &axes;
  SmallVector<TensorAxes> tensors;
  AxisOrder order;
};
} // namespace

FailureOr<AxisOrder> sluice::orderAxes(ArrayRef<Operation *> ops, ArrayRef<Value> outputs,
                                       RegionAxes &axes) {
  return Orderer(ops, outputs, axes).run();
}
