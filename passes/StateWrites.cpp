#include "passes/StateWrites.h"

#include "passes/BlockOrder.h"
#include "passes/Collectives.h"
#include "passes/NarrowReads.h"
#include "passes/RegionDomain.h"
#include "passes/lowering/Lowerings.h"

#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;

namespace sluice {
namespace {

/// What reads the result may read the operand's bytes.
bool mayBeView(Operation *op) {
  if (isReadNarrow(op))
    return true;
  return isa<graph::ReshapeOp, graph::SliceOp, graph::TransposeOp>(op) &&
         !op->hasAttr(copyAttr);
}

class WritePlacer {
public:
  explicit WritePlacer(func::FuncOp function)
      : block(function.getBody().front()), builder(function.getContext()) {
    for (auto read : block.getOps<graph::ReadOp>())
      reads[read.getSymbolAttr()].push_back(read.getValue());
  }

  StateTargets run() {
    for (auto write : llvm::make_early_inc_range(block.getOps<graph::WriteOp>()))
      place(write);
    copyResults();
    sortBlock(block, after);
    return std::move(targets);
  }

private:
  void place(graph::WriteOp write) {
    Value root = storageRoot(write.getValue());
    auto read = root.getDefiningOp<graph::ReadOp>();
    if (read && read.getSymbolAttr() == write.getSymbolAttr()) {
      write.erase(); // the value it has already
      return;
    }
    SmallVector<Operation *> readers = readersOf(write.getSymbolAttr());
    if (!mayWriteState(root, write.getSymbolAttr(), readers)) {
      root = copyBefore(block.getTerminator(), write.getValue());
      write.getValueMutable().assign(root);
      readers = readersOf(write.getSymbolAttr()); // the copy may be one
    }
    targets[root] = write.getSymbolAttr();
    for (Operation *reader : readers)
      if (reader != root.getDefiningOp())
        after[reader].push_back(root.getDefiningOp());
  }

  bool mayWriteState(Value root, FlatSymbolRefAttr symbol,
                     ArrayRef<Operation *> readers) {
    Operation *producer = root.getDefiningOp();
    if (!producer || isa<graph::ReadOp, graph::SliceOp>(producer) || targets.count(root))
      return false;
    if (llvm::is_contained(readers, producer) && !updatesInPlace(root, symbol))
      return false;
    llvm::SmallPtrSet<Operation *, 32> reached;
    collectReached(producer, reached);
    return llvm::none_of(readers, [&](Operation *reader) {
      return reader != producer && reached.contains(reader);
    });
  }

  /// The region that computes `root` reads each element of the state no later than it
  /// writes it.
  bool updatesInPlace(Value root, FlatSymbolRefAttr symbol) {
    auto region = root.getDefiningOp<graph::RegionOp>();
    if (!region)
      return false;
    unsigned output = cast<OpResult>(root).getResultNumber();
    for (auto [i, input] : llvm::enumerate(region.getInputs())) {
      if (!readsSymbol(input, symbol))
        continue;
      if (!input.getDefiningOp<graph::ReadOp>() || !canUpdateInPlace(region, i, output))
        return false;
    }
    return true;
  }

  static bool readsSymbol(Value value, FlatSymbolRefAttr symbol) {
    while (Operation *op = value.getDefiningOp()) {
      if (auto read = dyn_cast<graph::ReadOp>(op))
        return read.getSymbolAttr() == symbol;
      if (!mayBeView(op))
        return false;
      value = op->getOperand(0);
    }
    return false;
  }

  /// Operations that read the old value, through views too.
  SmallVector<Operation *> readersOf(FlatSymbolRefAttr symbol) {
    SmallVector<Operation *> readers;
    SmallVector<Value> open(reads[symbol]);
    while (!open.empty())
      for (Operation *user : open.pop_back_val().getUsers()) {
        readers.push_back(user);
        auto sum = dyn_cast<graph::AllReduceOp>(user);
        if (mayBeView(user) || (sum && reducesInPlace(sum)))
          open.push_back(user->getResult(0));
      }
    return readers;
  }

  void collectReached(Operation *from, llvm::SmallPtrSetImpl<Operation *> &reached) {
    SmallVector<Operation *> open{from};
    while (!open.empty()) {
      Operation *op = open.pop_back_val();
      auto visit = [&](Operation *next) {
        if (reached.insert(next).second)
          open.push_back(next);
      };
      llvm::for_each(op->getUsers(), visit);
      llvm::for_each(after.lookup(op), visit);
    }
  }

  Value copyBefore(Operation *position, Value value) {
    builder.setInsertionPoint(position);
    auto copy = builder.create<graph::ReshapeOp>(value.getLoc(), value,
                                                 graph::tensorType(value).getShape());
    copy->setAttr(copyAttr, builder.getUnitAttr());
    return copy;
  }

  /// Results must not be bytes of the state, of an input, of a constant or of another
  /// result.
  void copyResults() {
    Operation *terminator = block.getTerminator();
    llvm::SmallPtrSet<Value, 8> taken;
    for (OpOperand &operand : terminator->getOpOperands()) {
      Value root = storageRoot(operand.get());
      Operation *producer = root.getDefiningOp();
      bool shared =
          !producer || isa<graph::ReadOp, graph::SliceOp, graph::ConstantOp>(producer);
      if (shared || targets.count(root) || !taken.insert(root).second)
        operand.set(copyBefore(terminator, operand.get()));
    }
    // A copy of an old value is one more reader of it.
    for (auto &[root, symbol] : targets)
      for (Operation *reader : readersOf(symbol))
        if (reader != root.getDefiningOp())
          after[reader].push_back(root.getDefiningOp());
  }

  Block &block;
  OpBuilder builder;
  DenseMap<Attribute, SmallVector<Value>> reads;
  OrderEdges after; // op -> what must come later
  StateTargets targets;
};

} // namespace

Value storageRoot(Value value) {
  while (auto reshape = value.getDefiningOp<graph::ReshapeOp>()) {
    if (reshape->hasAttr(copyAttr))
      break;
    value = reshape.getX();
  }
  return value;
}

StateTargets placeStateWrites(func::FuncOp function) {
  return WritePlacer(function).run();
}

} // namespace sluice
