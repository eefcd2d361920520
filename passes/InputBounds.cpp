#include "passes/InputBounds.h"

#include <algorithm>
#include <limits>

using namespace mlir;

namespace sluice {

namespace {

/// The range common to all tables; negative indices count from the end.
struct Bounds {
  int64_t low = std::numeric_limits<int64_t>::min();
  int64_t high = std::numeric_limits<int64_t>::max();
  void index(int64_t rows) {
    low = std::max(low, -rows);
    high = std::min(high, rows - 1);
  }
};

void follow(Value indices, Bounds &bounds) {
  for (OpOperand &use : indices.getUses()) {
    Operation *user = use.getOwner();
    if (auto gather = dyn_cast<graph::GatherOp>(user)) {
      if (gather.getIndices() == indices)
        bounds.index(graph::tensorType(gather.getX()).getDimSize(gather.getAxis()));
    } else if (auto gather = dyn_cast<graph::GatherElementsOp>(user)) {
      if (gather.getIndices() == indices)
        bounds.index(graph::tensorType(gather.getX()).getDimSize(gather.getAxis()));
    } else if (isa<graph::ReshapeOp, graph::TransposeOp, graph::BroadcastOp>(user)) {
      follow(user->getResult(0), bounds);
    } else if (auto cast = dyn_cast<graph::CastOp>(user)) {
      if (cast.getElementType().isInteger(64) || cast.getElementType().isInteger(32))
        follow(cast.getY(), bounds);
    }
  }
}

} // namespace

void boundIndexInputs(func::FuncOp entry) {
  for (BlockArgument argument : entry.getArguments()) {
    Type element = graph::tensorType(argument).getElementType();
    if (!element.isInteger(64) && !element.isInteger(32))
      continue;
    Bounds bounds;
    follow(argument, bounds);
    if (bounds.high == std::numeric_limits<int64_t>::max())
      continue;
    entry.setArgAttr(
        argument.getArgNumber(), "graph.bounds",
        DenseI64ArrayAttr::get(entry.getContext(), {bounds.low, bounds.high}));
  }
}

} // namespace sluice
