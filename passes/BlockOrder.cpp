#include "passes/BlockOrder.h"

#include <queue>

using namespace mlir;

namespace sluice {

void sortBlock(Block &block, const OrderEdges &after) {
  DenseMap<Operation *, int64_t> position, missing;
  SmallVector<Operation *> ops;
  for (Operation &op : block.without_terminator()) {
    position[&op] = ops.size();
    ops.push_back(&op);
  }
  auto successors = [&](Operation *op) {
    SmallVector<Operation *> list(op->getUsers());
    list.append(after.lookup(op));
    llvm::erase_if(list, [&](Operation *next) { return !position.count(next); });
    return list;
  };
  for (Operation *op : ops)
    for (Operation *next : successors(op))
      ++missing[next];
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> ready;
  for (Operation *op : ops)
    if (missing.lookup(op) == 0)
      ready.push(position[op]);
  while (!ready.empty()) {
    Operation *op = ops[ready.top()];
    ready.pop();
    op->moveBefore(block.getTerminator());
    for (Operation *next : successors(op))
      if (--missing[next] == 0)
        ready.push(position[next]);
  }
}

} // namespace sluice
