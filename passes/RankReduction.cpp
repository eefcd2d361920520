#include "passes/RankReduction.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace sluice {

using graph::GraphBuilder;

Value sumOverRanks(Value local, StringRef name, OpBuilder &b) {
  return b.create<graph::AllReduceOp>(local.getLoc(), local, b.getStringAttr(name));
}

/// What dimension 0 of `value` lies in: [1, shape].
static Value asRow(GraphBuilder &b, Value value) {
  SmallVector<int64_t> shape{1};
  llvm::append_range(shape, graph::tensorType(value).getShape());
  return b.reshape(value, shape);
}

static RankedTensorType rowsOf(RankedTensorType type, int64_t rows) {
  SmallVector<int64_t> shape{rows};
  llvm::append_range(shape, type.getShape());
  return RankedTensorType::get(shape, type.getElementType());
}

/// Takes row `index` of the first dimension, which it drops.
static Value rowAt(GraphBuilder &b, Value rows, int64_t index) {
  auto type = graph::tensorType(rows);
  SmallVector<int64_t> starts(type.getRank(), 0), sizes(type.getShape()),
      steps(type.getRank(), 1);
  starts[0] = index, sizes[0] = 1;
  Value row = b.create<graph::SliceOp>(rows, starts, sizes, steps);
  return b.reshape(row, type.getShape().drop_front());
}

/// i1: the row of dimension 0 is `index`, in the shape of `like`.
static Value isRow(GraphBuilder &b, Value index, Value like) {
  ArrayRef<int64_t> shape = graph::tensorType(like).getShape();
  auto numbers = llvm::to_vector(llvm::seq<int64_t>(0, shape[0]));
  auto type = RankedTensorType::get(shape[0], b.getI64Type());
  Value rows = b.make<graph::ConstantOp>(
      cast<ElementsAttr>(DenseElementsAttr::get(type, ArrayRef<int64_t>(numbers))));
  rows = b.broadcastAlong(rows, shape, 0);
  return b.compare(rows, "eq", b.broadcastLike(index, rows));
}

LogicalResult RankStatistics::takeFrom(func::FuncOp entry) {
  from = entry;
  SmallVector<graph::WriteOp> writes;
  for (auto write : entry.getBody().front().getOps<graph::WriteOp>())
    if (graph::ParameterOp target = state.lookup(write.getSymbol());
        target && target.getRole() == "buffer")
      writes.push_back(write);
  for (graph::WriteOp write : writes)
    if (failed(take(write)))
      return failure();
  return success();
}

LogicalResult RankStatistics::take(graph::WriteOp write) {
  Statistic statistic;
  statistic.symbol = write.getSymbolAttr().getAttr();
  statistic.name = modelName(write.getSymbol()).str();
  statistic.result = write.getValue();
  Block &block = from.getBody().front();
  llvm::SetVector<Operation *> path;
  for (auto read : block.getOps<graph::ReadOp>())
    if (read.getSymbol() == write.getSymbol())
      statistic.olds.push_back(read.getValue());
  for (Operation &op : block)
    if (llvm::any_of(op.getOperands(), [&](Value operand) {
          return llvm::is_contained(statistic.olds, operand) ||
                 (operand.getDefiningOp() && path.contains(operand.getDefiningOp()));
        })) {
      if (&op == write.getOperation())
        continue;
      if (!isMemoryEffectFree(&op) || op.hasTrait<OpTrait::IsTerminator>())
        return op.emitError("reads '")
               << statistic.name << "', which the step changes: with several ranks "
               << "('parallel.data') that is not there yet";
      path.insert(&op);
    }
  for (Operation *op : path) {
    // What the path leads to is the write alone.
    for (Operation *user : op->getUsers())
      if (user != write.getOperation() && !path.contains(user))
        return user->emitError("reads '")
               << statistic.name << "', which the step changes: with several ranks "
               << "('parallel.data') that is not there yet";
    for (Value operand : op->getOperands()) {
      bool isPath = operand.getDefiningOp() && path.contains(operand.getDefiningOp());
      if (isPath || llvm::is_contained(statistic.olds, operand))
        continue;
      bool isConstant = operand.getDefiningOp<graph::ConstantOp>() != nullptr;
      auto &list = isConstant ? statistic.constants : statistic.contributions;
      if (!llvm::is_contained(list, operand))
        list.push_back(operand);
    }
  }
  if (path.empty()) // a new value that does not depend on the old one
    statistic.contributions.push_back(statistic.result);
  statistic.path = path.takeVector();
  write.erase();
  statistics.push_back(std::move(statistic));
  return success();
}

std::string RankStatistics::slotName(const Statistic &statistic, size_t index) const {
  return statistic.name + (index > 0 ? "/" + std::to_string(index) : "");
}

graph::ParameterOp RankStatistics::slots(const Statistic &statistic, size_t index) {
  return state.declare(
      "window/" + slotName(statistic, index),
      rowsOf(graph::tensorType(statistic.contributions[index]), microBatches),
      "accumulator");
}

graph::ParameterOp RankStatistics::taken() {
  return state.declare(
      "window/taken",
      RankedTensorType::get({microBatches}, Float32Type::get(from.getContext())),
      "accumulator");
}

void RankStatistics::record(func::FuncOp micro, OpBuilder &builder) {
  EntryReads reads(micro, state);
  GraphBuilder b(NameLoc::get(builder.getStringAttr("statistics")), builder);
  if (statistics.empty())
    return;
  Value index = reads.control("control/pending", builder.getI64Type());
  auto put = [&](graph::ParameterOp target, Value row) {
    Value old = reads.read(target);
    Value rows = b.broadcastLike(asRow(b, row), old);
    b.create<graph::WriteOp>(target.getSymName(),
                             b.select(isRow(b, index, old), rows, old));
  };
  for (Statistic &statistic : statistics)
    for (size_t i = 0; i < statistic.contributions.size(); ++i)
      put(slots(statistic, i), statistic.contributions[i]);
  put(taken(), b.splat(RankedTensorType::get({}, b.getF32Type()), 1));
}

/// [microBatches, ...] of each rank as [ranks * microBatches, ...] on all.
Value RankStatistics::gather(Value rows, StringRef name, EntryReads &reads,
                             OpBuilder &builder) {
  GraphBuilder b(NameLoc::get(builder.getStringAttr("statistics")), builder);
  Value rank = reads.control("control/rank", builder.getI64Type());
  auto type = graph::tensorType(rows);
  SmallVector<int64_t> shape{ranks}, flat{ranks * microBatches};
  llvm::append_range(shape, type.getShape());
  llvm::append_range(flat, type.getShape().drop_front());
  Value all = b.broadcast(asRow(b, rows), shape);
  // The others' rows are 0, so the sum over ranks only puts them side by side.
  Value own = b.select(isRow(b, rank, all), all, b.splatLike(all, 0));
  return b.reshape(sumOverRanks(own, name, builder), flat);
}

/// Of a rank without a micro-batch.
Value RankStatistics::gatherNothing(RankedTensorType row, StringRef name,
                                    OpBuilder &builder) {
  GraphBuilder b(NameLoc::get(builder.getStringAttr("statistics")), builder);
  SmallVector<int64_t> flat{ranks * microBatches};
  llvm::append_range(flat, row.getShape());
  Value zeros = b.splat(rowsOf(rowsOf(row, microBatches), ranks), 0);
  return b.reshape(sumOverRanks(zeros, name, builder), flat);
}

void RankStatistics::apply(func::FuncOp entry, bool current, OpBuilder &builder) {
  if (statistics.empty())
    return;
  EntryReads reads(entry, state);
  GraphBuilder b(NameLoc::get(builder.getStringAttr("statistics")), builder);
  bool isIdle = !current && microBatches == 1;
  auto scalar = RankedTensorType::get({}, b.getF32Type());
  Value flags;
  if (isIdle)
    flags = gatherNothing(scalar, "window/taken", builder);
  else
    flags = gather(current ? b.splat(rowsOf(scalar, 1), 1) : reads.read(taken()),
                   "window/taken", reads, builder);
  if (!current && !isIdle)
    b.create<graph::WriteOp>(taken().getSymName(), b.splat(taken().getTensorType(), 0));
  for (Statistic &statistic : statistics) {
    SmallVector<Value> gathered;
    for (size_t i = 0; i < statistic.contributions.size(); ++i) {
      Value part = statistic.contributions[i];
      std::string name = "window/" + slotName(statistic, i);
      if (isIdle)
        gathered.push_back(gatherNothing(graph::tensorType(part), name, builder));
      else
        gathered.push_back(
            gather(current ? asRow(b, part) : reads.read(slots(statistic, i)), name,
                   reads, builder));
    }
    graph::ParameterOp buffer = state.lookup(statistic.symbol.getValue());
    Value value = reads.read(buffer);
    for (int64_t row = 0; row < ranks * microBatches; ++row) {
      IRMapping mapping;
      for (Value old : statistic.olds)
        mapping.map(old, value);
      for (Value constant : statistic.constants)
        mapping.map(constant, builder.clone(*constant.getDefiningOp())->getResult(0));
      for (auto [part, all] : llvm::zip_equal(statistic.contributions, gathered))
        mapping.map(part, rowAt(b, all, row));
      for (Operation *op : statistic.path)
        builder.clone(*op, mapping);
      Value next = mapping.lookup(statistic.result);
      Value isTaken = rowAt(b, flags, row);
      isTaken = b.compare(isTaken, "gt", b.splatLike(isTaken, 0));
      value = b.select(b.broadcastLike(isTaken, value), next, value);
    }
    b.create<graph::WriteOp>(statistic.symbol.getValue(), value);
  }
}

} // namespace sluice
