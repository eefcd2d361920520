#include "passes/NarrowState.h"

#include "ir/graph/GraphBuilder.h"
#include "ir/graph/Interpreter.h"
#include "passes/RankShards.h"
#include "passes/StoredState.h"

#include "mlir/IR/DialectResourceBlobManager.h"
#include "llvm/ADT/APFloat.h"

#include <bit>

using namespace mlir;

namespace sluice {
namespace {

std::string masterName(graph::ParameterOp parameter, bool low) {
  std::string name = ("master/" + modelName(parameter.getSymName())).str();
  return low ? name + "/low" : name;
}

/// 16-bit words as the initial value of a parameter of any 16-bit type.
void setWords(graph::ParameterOp parameter, ArrayRef<uint16_t> words) {
  constexpr size_t inlined = 256;
  RankedTensorType type = parameter.getTensorType();
  ArrayRef<char> bytes(reinterpret_cast<const char *>(words.data()), words.size() * 2);
  if (words.size() <= inlined)
    parameter.setInitAttr(DenseElementsAttr::getFromRawBuffer(type, bytes));
  else
    parameter.setInitAttr(DenseResourceElementsAttr::get(
        type, modelName(parameter.getSymName()),
        HeapAsmResourceBlob::allocateAndCopyWithAlign(bytes, alignof(uint16_t))));
}

uint16_t nearest(float value, FloatType type) {
  APFloat narrow(value);
  bool loses = false;
  narrow.convert(type.getFloatSemantics(), APFloat::rmNearestTiesToEven, &loses);
  return static_cast<uint16_t>(narrow.bitcastToAPInt().getZExtValue());
}

uint16_t highHalf(float value) {
  return static_cast<uint16_t>((std::bit_cast<uint32_t>(value) + 0x8000) >> 16);
}
uint16_t lowHalf(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>(bits - (uint32_t{highHalf(value)} << 16));
}

template <class F>
std::vector<uint16_t> wordsOf(const graph::HostTensor &values, F word) {
  std::vector<uint16_t> words;
  words.reserve(values.reals.size());
  for (double value : values.reals)
    words.push_back(word(static_cast<float>(value)));
  return words;
}

} // namespace

void storeNarrow(graph::ParameterOp parameter, FloatType narrow, StringRef master,
                 StateSymbols &state) {
  RankedTensorType wide = parameter.getTensorType();
  ElementsAttr init = parameter.getInitAttr();
  StringRef group = parameter.getGroup().value_or("");
  Builder b(parameter.getContext());
  graph::ParameterOp rest;
  if (master == "split")
    rest = state.declare(masterName(parameter, true), wide.clone(b.getI16Type()),
                         "master", group);
  else if (master == "fp32")
    rest = state.declare(masterName(parameter, false), wide, "master", group);

  parameter.removeInitAttr();
  parameter.setType(wide.clone(narrow));
  if (rest)
    rest.setFillAttr(parameter.getFillAttr());
  FailureOr<graph::HostTensor> values = failure();
  if (init)
    values = graph::HostTensor::fromAttribute(init);
  else if (master == "split" && !parameter.getFill().isZero()) {
    values = graph::HostTensor::zeros(wide);
    std::fill(values->reals.begin(), values->reals.end(),
              parameter.getFill().convertToDouble());
  }
  if (failed(values)) {
    if (init && rest && master == "fp32")
      rest.setInitAttr(init);
    return;
  }
  if (master == "split") {
    setWords(parameter, wordsOf(*values, highHalf));
    setWords(rest, wordsOf(*values, lowHalf));
    rest.setFillAttr(b.getF64FloatAttr(0));
    return;
  }
  bool halfUp = master == "fp32" && narrow.isBF16();
  setWords(parameter, wordsOf(*values, [&](float x) {
             return halfUp ? highHalf(x) : nearest(x, narrow);
           }));
  if (rest)
    rest.setInitAttr(init);
}

Value readExact(graph::ParameterOp parameter, StateSymbols &state, EntryReads &reads,
                OpBuilder &builder) {
  if (graph::ParameterOp master = state.lookup(masterName(parameter, false)))
    return reads.read(master);
  constexpr int64_t updateSite = -1; // no reader of the step's
  if (storedFormatOf(parameter))
    return decodeStored(parameter, readStored(parameter, state, reads), updateSite,
                        builder);
  Value stored = reads.read(parameter);
  graph::GraphBuilder b(parameter.getLoc(), builder);
  if (graph::ParameterOp low = state.lookup(masterName(parameter, true)))
    return b.make<graph::JoinSplitOp>(stored, reads.read(low));
  return b.cast(stored, builder.getF32Type());
}

bool isStoredInCodes(graph::ParameterOp parameter) {
  if (storedFormatOf(parameter))
    return true;
  Type element = parameter.getTensorType().getElementType();
  return !element.isF32() && !element.isBF16() && !element.isF16();
}

bool isRoundedStochastically(graph::ParameterOp parameter, const StateSymbols &state) {
  return !parameter.getTensorType().getElementType().isF32() &&
         !state.lookup(masterName(parameter, false)) &&
         !state.lookup(masterName(parameter, true));
}

Value readExact(graph::ParameterOp parameter, const RankShards &shards,
                StateSymbols &state, EntryReads &reads, OpBuilder &builder) {
  if (!shards.isShared()) {
    Value exact = readExact(parameter, state, reads, builder);
    if (!shards.computesInRows())
      return exact;
    graph::GraphBuilder b(parameter.getLoc(), builder);
    return b.reshape(exact, shards.wholeType(b.getF32Type()).getShape());
  }
  graph::ParameterOp master = state.lookup(masterName(parameter, false));
  graph::ParameterOp low = state.lookup(masterName(parameter, true));
  if (master) {
    shards.shard(master);
    return reads.read(master);
  }
  graph::GraphBuilder b(parameter.getLoc(), builder);
  Value own = shards.ownRows(reads.read(parameter), reads, builder);
  if (!low)
    return b.cast(own, b.getF32Type());
  shards.shard(low);
  return b.make<graph::JoinSplitOp>(own, reads.read(low));
}

/// Ids with the top bit set are no operation's of a model.
static int64_t idOf(graph::ParameterOp target) {
  uint32_t id = 2166136261u; // FNV-1a of the name
  for (char c : target.getSymName())
    id = (id ^ static_cast<uint8_t>(c)) * 16777619u;
  return int64_t{id | 0x80000000u};
}

Value randomOfUpdate(graph::ParameterOp target, ArrayRef<int64_t> shape,
                     EntryReads &reads, OpBuilder &builder) {
  graph::GraphBuilder b(target.getLoc(), builder);
  Value zero = b.splat(RankedTensorType::get({}, b.getI64Type()), 0);
  return b.make<graph::RandomUniformOp>(reads.control("control/seed", b.getI64Type()),
                                        reads.control("control/update", b.getI64Type()),
                                        zero, shape, idOf(target),
                                        /*batched=*/false);
}

/// Codes beside a master are the nearest; without one they are the parameter.
static void writeCodes(graph::ParameterOp parameter, Value value, Value moves,
                       StateSymbols &state, EntryReads &reads, OpBuilder &builder) {
  Value noise;
  if (graph::ParameterOp master = state.lookup(masterName(parameter, false)))
    builder.create<graph::WriteOp>(parameter.getLoc(), master.getSymName(), value);
  else
    noise =
        randomOfUpdate(parameter, graph::tensorType(value).getShape(), reads, builder);
  writeStored(parameter, value, noise, moves, state, reads, builder);
}

void writeExact(graph::ParameterOp parameter, Value value, Value moves,
                StateSymbols &state, EntryReads &reads, OpBuilder &builder) {
  if (storedFormatOf(parameter))
    return writeCodes(parameter, value, moves, state, reads, builder);
  graph::GraphBuilder b(parameter.getLoc(), builder);
  auto write = [&](graph::ParameterOp target, Value part) {
    b.create<graph::WriteOp>(target.getSymName(), part);
  };
  Type element = parameter.getTensorType().getElementType();
  if (element == graph::tensorType(value).getElementType())
    return write(parameter, value);
  if (graph::ParameterOp master = state.lookup(masterName(parameter, false))) {
    write(master, value);
    return write(parameter, element.isBF16() ? b.make<graph::SplitHighOp>(value)
                                             : b.cast(value, element));
  }
  if (graph::ParameterOp low = state.lookup(masterName(parameter, true))) {
    write(parameter, b.make<graph::SplitHighOp>(value));
    return write(low, b.make<graph::SplitLowOp>(value));
  }
  ArrayRef<int64_t> shape = graph::tensorType(value).getShape();
  write(parameter, b.make<graph::RoundStochasticOp>(
                       value, randomOfUpdate(parameter, shape, reads, builder)));
}

Value randomOfRows(graph::ParameterOp target, const RankShards &shards, EntryReads &reads,
                   OpBuilder &builder) {
  graph::GraphBuilder b(target.getLoc(), builder);
  return b.make<graph::RandomUniformOp>(
      reads.control("control/seed", b.getI64Type()),
      reads.control("control/update", b.getI64Type()), shards.firstRow(reads, builder),
      shards.ownType(b.getF32Type()).getShape(), idOf(target), /*batched=*/true);
}

void writeExact(graph::ParameterOp parameter, Value value, const RankShards &shards,
                StateSymbols &state, EntryReads &reads, OpBuilder &builder) {
  graph::GraphBuilder b(parameter.getLoc(), builder);
  Type element = parameter.getTensorType().getElementType();
  auto write = [&](graph::ParameterOp target, Value part) {
    part = b.reshape(part, target.getTensorType().getShape());
    b.create<graph::WriteOp>(target.getSymName(), part);
  };
  graph::ParameterOp master = state.lookup(masterName(parameter, false));
  graph::ParameterOp low = state.lookup(masterName(parameter, true));
  Value stored = value;
  if (low || (master && element.isBF16()))
    stored = b.make<graph::SplitHighOp>(value);
  else if (master)
    stored = b.cast(value, element);
  else if (!element.isF32())
    stored = b.make<graph::RoundStochasticOp>(
        value, randomOfRows(parameter, shards, reads, builder));
  if (master)
    write(master, value);
  if (low)
    write(low, b.make<graph::SplitLowOp>(value));
  if (shards.isShared())
    stored = shards.gatherRows(stored, parameter.getSymName(), builder);
  write(parameter, stored);
}

} // namespace sluice
