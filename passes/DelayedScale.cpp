#include "passes/DelayedScale.h"

#include "ir/graph/GraphBuilder.h"
#include "passes/EntryFunctions.h"

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

void DelayedScale::closeWindows(func::FuncOp update, StateSymbols &state) {
  OpBuilder builder(returnOf(update));
  EntryReads reads(update, state);
  SmallVector<graph::ParameterOp> windows;
  for (auto declared : update->getParentOfType<ModuleOp>().getOps<graph::ParameterOp>())
    if (declared.getSymName().starts_with("scale/") &&
        declared.getSymName().ends_with(windowSuffix))
      windows.push_back(declared);
  for (graph::ParameterOp window : windows) {
    GraphBuilder b(window.getLoc(), builder);
    StringRef name = window.getSymName();
    name.consume_back(windowSuffix);
    graph::ParameterOp history = state.lookup((name + historySuffix).str());
    Value largest = reads.read(window);
    b.create<graph::WriteOp>(history.getSymName(),
                             shifted(b, reads.read(history), largest));
    b.create<graph::WriteOp>(window.getSymName(), b.splatLike(largest, 0));
  }
}

} // namespace sluice
