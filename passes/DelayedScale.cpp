#include "passes/DelayedScale.h"

#include "ir/graph/GraphBuilder.h"
#include "passes/EntryFunctions.h"
#include "passes/RankReduction.h"

#include <limits>

using namespace mlir;

namespace sluice {

using graph::GraphBuilder;

static constexpr StringLiteral historySuffix = "/history", windowSuffix = "/window";

DelayedScale::DelayedScale(const std::string &key, double firstLargest, StringRef group,
                           StateSymbols &state, MLIRContext *context)
    : state(state) {
  Type f32 = Float32Type::get(context);
  history = state.declare("scale/" + key + historySuffix.str(),
                          RankedTensorType::get({length}, f32), "control", group);
  if (firstLargest > 0)
    history.setFillAttr(Builder(history.getContext()).getF64FloatAttr(firstLargest));
}

Value DelayedScale::value(StoredFormat format, EntryReads &reads, OpBuilder &builder) {
  GraphBuilder b(history.getLoc(), builder);
  Value largest = b.reduce(reads.read(history), "max", {0}, /*keep=*/true);
  double number = format == StoredFormat::e5m2 ? 57344 : 448;
  Value scale = b.div(largest, b.splatLike(largest, number));
  // What is too small for a scale has none, as under current scaling.
  Value isThere = b.compare(scale, "ge", b.splatLike(scale, 0x1p-126));
  return b.select(isThere, scale, b.splatLike(scale, 1));
}

/// The history with a new entry; what is not finite says nothing of the next values.
static Value shifted(GraphBuilder &b, Value history, Value largest) {
  int64_t kept = DelayedScale::length - 1;
  Value rest = b.make<graph::SliceOp>(history, ArrayRef<int64_t>{0},
                                      ArrayRef<int64_t>{kept}, ArrayRef<int64_t>{1});
  Value most = b.splatLike(largest, std::numeric_limits<float>::max());
  Value isFinite = b.compare(largest, "le", most);
  Value next = b.select(isFinite, largest, b.splatLike(largest, 0));
  Value parts[] = {b.reshape(next, {1}), rest};
  return b.make<graph::ConcatOp>(ValueRange(parts), int64_t{0});
}

graph::ParameterOp DelayedScale::historyOf(const std::string &key,
                                           const StateSymbols &state) {
  return state.lookup("scale/" + key + historySuffix.str());
}

void DelayedScale::observe(Value value, bool isWindow, Value moves, EntryReads &reads,
                           OpBuilder &builder) {
  GraphBuilder b(history.getLoc(), builder);
  int64_t elements = graph::tensorType(value).getNumElements();
  Value flat = b.reshape(b.make<graph::AbsOp>(value), {1, elements});
  Value largest = b.reshape(b.reduce(flat, "max", {1}, /*keep=*/false), {1});
  if (!isWindow) {
    Value old = reads.read(history), next = shifted(b, old, largest);
    if (moves)
      next = b.select(b.broadcastLike(moves, next), next, old);
    b.create<graph::WriteOp>(history.getSymName(), next);
    return;
  }
  StringRef name = history.getSymName();
  name.consume_back(historySuffix);
  graph::ParameterOp window =
      state.declare((name + windowSuffix).str(), graph::tensorType(largest),
                    "accumulator", history.getGroup().value_or(""));
  b.create<graph::WriteOp>(window.getSymName(),
                           b.make<graph::MaxOp>(reads.read(window), largest));
}

/// What an entry found for a window, which it then need not write, or what the window
/// has.
static Value windowValue(func::FuncOp entry, graph::ParameterOp window,
                         EntryReads &reads) {
  for (auto write : entry.getBody().front().getOps<graph::WriteOp>())
    if (write.getSymbol() == window.getSymName()) {
      Value value = write.getValue();
      write.erase();
      return value;
    }
  return reads.read(window);
}

/// The largest of all ranks for each of `values`, f32 [1]. Each rank's are a row of a sum
/// whose other terms are 0, so it is exact.
static SmallVector<Value> largestOfRanks(ArrayRef<Value> values, int64_t ranks,
                                         EntryReads &reads, OpBuilder &builder) {
  GraphBuilder b(values.front().getLoc(), builder);
  int64_t count = values.size();
  Value row = values.front();
  if (count > 1)
    row = b.make<graph::ConcatOp>(ValueRange(values), int64_t{0});
  Value all = b.broadcast(b.reshape(row, {1, count}), {ranks, count});
  Value rank = reads.control("control/rank", builder.getI64Type());
  const int64_t shape[] = {ranks, count};
  Value isOwn = b.compare(b.make<graph::IotaOp>(ArrayRef<int64_t>(shape), int64_t{0}),
                          "eq", b.broadcast(rank, shape));
  Value own = b.select(isOwn, all, b.splatLike(all, 0));
  Value summed = sumOverRanks(own, "window/largest", builder);
  Value largest = b.reduce(summed, "max", {0}, /*keep=*/false);
  SmallVector<Value> each;
  for (int64_t i = 0; i < count; ++i)
    each.push_back(b.make<graph::SliceOp>(largest, ArrayRef<int64_t>{i},
                                          ArrayRef<int64_t>{1}, ArrayRef<int64_t>{1}));
  return each;
}

void DelayedScale::closeWindows(func::FuncOp update, int64_t ranks, StateSymbols &state) {
  OpBuilder builder(returnOf(update));
  EntryReads reads(update, state);
  SmallVector<graph::ParameterOp> windows;
  for (auto declared : update->getParentOfType<ModuleOp>().getOps<graph::ParameterOp>())
    if (declared.getSymName().starts_with("scale/") &&
        declared.getSymName().ends_with(windowSuffix))
      windows.push_back(declared);
  if (windows.empty())
    return;
  SmallVector<Value> found;
  for (graph::ParameterOp window : windows)
    found.push_back(windowValue(update, window, reads));
  if (ranks > 1)
    found = largestOfRanks(found, ranks, reads, builder);
  bool isStep = update.getSymName() == "step";
  for (auto [window, largest] : llvm::zip_equal(windows, found)) {
    GraphBuilder b(window.getLoc(), builder);
    StringRef name = window.getSymName();
    name.consume_back(windowSuffix);
    graph::ParameterOp history = state.lookup((name + historySuffix).str());
    b.create<graph::WriteOp>(history.getSymName(),
                             shifted(b, reads.read(history), largest));
    if (!isStep)
      b.create<graph::WriteOp>(window.getSymName(), b.splatLike(largest, 0));
  }
}

} // namespace sluice
