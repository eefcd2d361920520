#include "codegen/Interleave.h"

#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace sluice {

Operation *InterleavedCopies::lastBuilt() const {
  Block *block = builder.getInsertionBlock();
  Block::iterator at = builder.getInsertionPoint();
  return at == block->begin() ? nullptr : &*std::prev(at);
}

void InterleavedCopies::finish() {
  Block *block = builder.getInsertionBlock();
  SmallVector<SmallVector<Operation *>> copies;
  llvm::DenseSet<Operation *> open; // not yet in place
  before.push_back(lastBuilt());
  for (size_t i = 0; i + 1 < before.size(); ++i) {
    SmallVector<Operation *> &copy = copies.emplace_back();
    Block::iterator from =
        before[i] ? std::next(before[i]->getIterator()) : block->begin();
    Block::iterator to =
        before[i + 1] ? std::next(before[i + 1]->getIterator()) : block->begin();
    for (Operation &op : llvm::make_range(from, to)) {
      if (op.getNumRegions() > 0)
        return;
      copy.push_back(&op);
      open.insert(&op);
    }
  }
  auto isReady = [&](Operation *op) {
    return llvm::none_of(op->getOperands(),
                         [&](Value v) { return open.contains(v.getDefiningOp()); });
  };
  SmallVector<size_t> next(copies.size(), 0);
  while (!open.empty())
    for (size_t i = 0; i < copies.size(); ++i)
      if (next[i] < copies[i].size() && isReady(copies[i][next[i]])) {
        Operation *op = copies[i][next[i]++];
        op->moveBefore(block, builder.getInsertionPoint());
        open.erase(op);
      }
}

} // namespace sluice
