#include "passes/MomentForm.h"

#include "ir/graph/GraphBuilder.h"
#include "passes/NarrowState.h"
#include "passes/RankShards.h"
#include "passes/StoredState.h"

#include <bit>

using namespace mlir;

namespace sluice {
namespace {

constexpr int64_t fullBlock = 256, leastBlock = 32, fewElements = 4096;

int64_t blockOf(int64_t elements) {
  for (int64_t block = fullBlock; block >= leastBlock; --block)
    if (elements % block == 0)
      return block;
  return 0;
}

/// A table that rows are looked up in.
bool isEmbedding(graph::ParameterOp parameter) {
  auto module = parameter->getParentOfType<ModuleOp>();
  WalkResult result = module.walk([&](graph::GatherOp gather) {
    if (gather->hasAttr(ownRowsAttr))
      return WalkResult::advance();
    Value table = gather.getX();
    if (auto cast = table.getDefiningOp<graph::CastOp>())
      table = cast.getX();
    if (auto decoded = table.getDefiningOp<graph::DequantizeOp>())
      table = decoded.getStored()[0];
    // Codes of 4 bits as rows of bytes.
    if (auto rows = table.getDefiningOp<graph::ReshapeOp>())
      table = rows.getX();
    auto read = table.getDefiningOp<graph::ReadOp>();
    return read && read.getSymbol() == parameter.getSymName() ? WalkResult::interrupt()
                                                              : WalkResult::advance();
  });
  return result.wasInterrupted();
}

/// Moments that have no entry below 0.
bool isPositiveMoment(StringRef name) {
  return llvm::is_contained({"v", "max_v", "sum", "square_avg"}, name);
}

} // namespace

MomentForm MomentForm::choose(StringRef format, StringRef optimizer,
                              graph::ParameterOp parameter, std::string &reason) {
  if (format == "bf16")
    return {Bf16};
  bool hasOwnBlocks = format == "int8" || format == "fp8";
  std::optional<StoredFormat> stored = storedFormat(format.str());
  if (!hasOwnBlocks && (!stored || *stored == StoredFormat::fp32))
    return {};
  RankedTensorType type = valueTypeOf(parameter);
  int64_t elements = type.getNumElements();
  if (optimizer == "adafactor" || optimizer == "muon")
    reason = optimizer.str() + " needs the matrix's rows";
  else if (type.getRank() < 2)
    reason = "a vector";
  else if (elements < fewElements)
    reason = "fewer than 4096 elements";
  else if (isEmbedding(parameter))
    reason = "an embedding";
  else if (!hasOwnBlocks && !isWhole(*stored, {type.getShape().data(),
                                               static_cast<size_t>(type.getRank())}))
    reason = std::to_string(elements) + " elements do not divide into whole blocks of " +
             format.str();
  else if (hasOwnBlocks && !blockOf(elements))
    reason =
        std::to_string(elements) + " elements do not divide into blocks of 32 to 256";
  else if (!hasOwnBlocks)
    return {Stored, 0, *stored};
  else
    return {format == "int8" ? Int8 : Fp8, blockOf(elements)};
  return {};
}

MomentForm MomentForm::ofMoment(StringRef name, std::string &reason) const {
  bool hasScale = traitsOf(format).scale != ScaleKind::none;
  if (kind != Stored || hasScale || !isPositiveMoment(name))
    return *this;
  reason = "'" + name.str() + "' has squares of gradients, and " +
           std::string(traitsOf(format).name) +
           " no scale: below 2^-12 those of gradients would be 0";
  return {};
}

StoredMoment::StoredMoment(MomentForm form, StringRef symbol, RankedTensorType type,
                           double fill, StringRef group, StateSymbols &state,
                           EntryReads &reads, OpBuilder &builder,
                           const RankShards &shards)
    : form(form), shards(shards), state(state), reads(reads), builder(builder) {
  if (form.kind == MomentForm::Stored) {
    declareStored(symbol, type, fill, group);
    return;
  }
  Type stored = form.hasBlocks()                ? Type(builder.getI8Type())
                : form.kind == MomentForm::Bf16 ? Type(builder.getBF16Type())
                                                : type.getElementType();
  tensor = state.declare(symbol, type.clone(stored), "moment", group);
  shards.shard(tensor);
  if (fill != 0 && !form.hasBlocks())
    tensor.setFillAttr(builder.getF64FloatAttr(fill));
  graph::GraphBuilder b(tensor.getLoc(), builder);
  if (!form.hasBlocks()) {
    exact = b.cast(reads.read(tensor), builder.getF32Type());
    if (shards.computesInRows())
      exact = b.reshape(exact, shards.ownType(builder.getF32Type()).getShape());
    return;
  }
  int64_t blocks = type.getNumElements() / form.block;
  StringRef suffix = form.kind == MomentForm::Int8 ? "/scale" : "/range";
  scale = state.declare((symbol + suffix).str(),
                        RankedTensorType::get({blocks}, builder.getF32Type()), "moment",
                        group);
  shards.shard(scale);
  if (fill != 0)
    setFill(fill);
  exact = decode();
}

void StoredMoment::declareStored(StringRef symbol, RankedTensorType type, double fill,
                                 StringRef group) {
  constexpr int64_t updateSite = -1; // no reader of the step's
  tensor = state.declare(symbol, type, "moment", group);
  if (!storedFormatOf(tensor)) { // else another entry has declared it
    tensor.setFillAttr(builder.getF64FloatAttr(fill));
    storeAs(tensor, form.format, /*keepsMaster=*/false, /*isDelayed=*/false, state);
  }
  exact = decodeStored(tensor, readStored(tensor, state, reads), updateSite, builder);
}

/// Codes of 1, and the scale that they are parts of.
void StoredMoment::setFill(double fill) {
  constexpr double codeOfOne = -1, signedCodeOfOne = -128, e4m3Of448 = 0x7E;
  double code = form.kind == MomentForm::Fp8 ? e4m3Of448
                : isPositive()               ? codeOfOne
                                             : signedCodeOfOne;
  if (form.kind == MomentForm::Fp8) { // to the power 1: 2 in the last bits
    uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(fill));
    fill = std::bit_cast<float>((bits & ~7u) | 2u);
  }
  tensor.setFillAttr(builder.getF64FloatAttr(code));
  scale.setFillAttr(builder.getF64FloatAttr(fill));
}

Value StoredMoment::decode() {
  graph::GraphBuilder b(tensor.getLoc(), builder);
  int64_t blocks = scale.getTensorType().getNumElements();
  Value codes = b.reshape(reads.read(tensor), {blocks, form.block});
  Value scales = b.broadcast(b.reshape(reads.read(scale), {blocks, 1}),
                             graph::tensorType(codes).getShape());
  if (form.kind == MomentForm::Fp8)
    return b.make<graph::RangeDecodeOp>(codes, scales);
  return b.mul(b.make<graph::DynamicDecodeOp>(codes, isPositive()), scales);
}

bool StoredMoment::isPositive() {
  return isPositiveMoment(StringRef(tensor.getSymName()).rsplit('/').second);
}

void StoredMoment::write(Value next, Value moves) {
  if (form.hasBlocks())
    return writeCodes(next, moves);
  if (form.kind == MomentForm::Stored)
    return sluice::writeStored(tensor, isPositive() ? aboveZero(next) : next, noise(next),
                               moves, state, reads, builder);
  graph::GraphBuilder b(tensor.getLoc(), builder);
  if (form.kind == MomentForm::Bf16)
    next = b.make<graph::RoundStochasticOp>(next, noise(next));
  writeStored(tensor, next, moves);
}

Value StoredMoment::aboveZero(Value next) {
  graph::GraphBuilder b(tensor.getLoc(), builder);
  SmallVector<int64_t> whole(graph::tensorType(next).getShape());
  BlockGrid grid = blocksOf(form.format, {whole.data(), whole.size()});
  SmallVector<int64_t> shape = {grid.count(), grid.blockRows * grid.blockColumns};
  SmallVector<int64_t> axes = {1};
  if (grid.blockRows > 1 && grid.across() > 1) { // tiles
    shape = {grid.down(), grid.blockRows, grid.across(), grid.blockColumns};
    axes = {1, 3};
  }
  FloorShares shares = floorShares(form.format);
  Value x = b.reshape(next, shape);
  Value largest = b.reduce(x, "max", axes, /*keep=*/true);
  Value floor = b.mul(largest, b.splatLike(largest, shares.ofBlock));
  if (shares.ofTensor > 0) {
    Value most = b.reduce(largest, "max", {0}, /*keep=*/true);
    most = b.mul(most, b.splatLike(most, shares.ofTensor));
    floor = b.make<graph::MaxOp>(floor, b.broadcastLike(most, floor));
  }
  return b.reshape(b.make<graph::MaxOp>(x, b.broadcastLike(floor, x)), whole);
}

Value StoredMoment::noise(Value next) {
  return shards.computesInRows()
             ? randomOfRows(tensor, shards, reads, builder)
             : randomOfUpdate(tensor, graph::tensorType(next).getShape(), reads, builder);
}

void StoredMoment::writeStored(graph::ParameterOp target, Value next, Value moves) {
  graph::GraphBuilder b(target.getLoc(), builder);
  next = b.reshape(next, target.getTensorType().getShape());
  Value kept = b.select(b.broadcastLike(moves, next), next, reads.read(target));
  b.create<graph::WriteOp>(target.getSymName(), kept);
}

void StoredMoment::writeCodes(Value next, Value moves) {
  Value stored, codes = encode(next, stored);
  writeStored(tensor, codes, moves);
  writeStored(scale, stored, moves);
}

Value StoredMoment::encode(Value next, Value &stored) {
  constexpr double leastNormal = 0x1p-126; // below, the inverse may not be finite
  graph::GraphBuilder b(tensor.getLoc(), builder);
  Value sizes = b.make<graph::AbsOp>(next);
  Value largest = b.reduce(sizes, "max", {1}, /*keep=*/true);
  if (form.kind == MomentForm::Fp8) {
    Value some = b.compare(sizes, "gt", b.splatLike(sizes, 0));
    Value nonZero = b.select(some, sizes, b.splatLike(sizes, 0x1.fffffep127));
    Value least = b.reduce(nonZero, "min", {1}, /*keep=*/true);
    stored = b.make<graph::RangeScaleOp>(largest, least, isPositive());
    return b.make<graph::RangeEncodeOp>(next, b.broadcastLike(stored, next),
                                        isPositive());
  }
  stored = largest;
  Value usable = b.compare(largest, "ge", b.splatLike(largest, leastNormal));
  Value one = b.splatLike(largest, 1), zero = b.splatLike(largest, 0);
  Value inverse = b.select(usable, b.div(one, b.select(usable, largest, one)), zero);
  return b.make<graph::DynamicEncodeOp>(b.mul(next, b.broadcastLike(inverse, next)),
                                        isPositive());
}

} // namespace sluice
