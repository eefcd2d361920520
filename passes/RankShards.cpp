#include "passes/RankShards.h"

#include "passes/NarrowState.h"

using namespace mlir;

namespace sluice {

using graph::GraphBuilder;

/// Optimizers that update each element on its own.
static bool isElementwise(StringRef optimizer) {
  return llvm::is_contained(
      {"sgd", "adam", "adamw", "nadam", "radam", "lion", "adagrad", "rmsprop"},
      optimizer);
}

/// Of `lora`: small, and read as a whole when it is merged into its weight.
static bool isAdapter(graph::ParameterOp parameter) {
  auto module = parameter->getParentOfType<ModuleOp>();
  auto adapters = module->getAttrOfType<ArrayAttr>("graph.adapters");
  for (Attribute adapter : adapters ? adapters.getValue() : ArrayRef<Attribute>())
    for (NamedAttribute part : cast<DictionaryAttr>(adapter))
      if (auto name = dyn_cast<StringAttr>(part.getValue()))
        if (name.getValue() == parameter.getSymName())
          return true;
  return false;
}

/// The elements of a row: the largest divisor up to 256 that leaves each rank a row, if
/// possible one that leaves all ranks equally many and is no less than a vector of lanes.
static int64_t chooseColumns(int64_t elements, int64_t ranks) {
  constexpr int64_t most = 256, least = 16;
  int64_t fallback = 1;
  for (int64_t columns = std::min(most, elements / ranks); columns > 1; --columns) {
    if (elements % columns != 0)
      continue;
    if (fallback == 1)
      fallback = columns;
    if (columns >= least && elements / columns % ranks == 0)
      return columns;
  }
  return fallback;
}

RankShards RankShards::choose(graph::ParameterOp parameter, StringRef optimizer,
                              MomentForm form, int64_t ranks, StateSymbols &state,
                              std::string &reason) {
  // A part of less than a cache line saves nothing: state is aligned to lines.
  constexpr int64_t leastElements = 16;
  int64_t elements = parameter.getTensorType().getNumElements();
  RankShards shards;
  shards.rounds =
      form.kind == MomentForm::Bf16 || isRoundedStochastically(parameter, state);
  if (ranks < 2)
    return shards;
  if (!isElementwise(optimizer))
    reason = optimizer.str() + " needs the whole tensor";
  else if (isStoredInCodes(parameter))
    reason = "its stored format has blocks of the whole";
  else if (form.kind == MomentForm::Stored)
    reason = "the stored format of its moments is that of the whole";
  else if (isAdapter(parameter))
    reason = "it is an adapter";
  else if (elements < leastElements * ranks ||
           (form.hasBlocks() && elements / form.block < ranks))
    reason = "so small that parts of it would save nothing";
  else {
    shards.columns = form.hasBlocks() ? form.block : chooseColumns(elements, ranks);
    shards.rows = {elements / shards.columns, ranks};
  }
  return shards;
}

void RankShards::shard(graph::ParameterOp declared) const {
  if (!isShared() || declared->hasAttr(graph::wholeShapeAttr))
    return;
  RankedTensorType type = declared.getTensorType();
  bool perRow = type.getNumElements() == rows.rows && columns != 1;
  Builder b(declared.getContext());
  declared->setAttr(graph::wholeShapeAttr, b.getDenseI64ArrayAttr(type.getShape()));
  declared->setAttr(graph::shardRowsAttr, b.getI64IntegerAttr(rows.rows));
  RankedTensorType part = shardType(type.getElementType());
  declared.setType(perRow ? part.clone({rows.most()}) : part);
}

Value RankShards::firstRow(EntryReads &reads, OpBuilder &builder) const {
  GraphBuilder b(NameLoc::get(builder.getStringAttr("shards")), builder);
  if (!isShared())
    return b.splat(RankedTensorType::get({}, b.getI64Type()), 0);
  Value rank = reads.control("control/rank", b.getI64Type());
  Value each = b.mul(rank, b.splatLike(rank, double(rows.rows / rows.ranks)));
  Value rest = b.splatLike(rank, double(rows.rows % rows.ranks));
  return b.add(each, b.make<graph::MinOp>(rank, rest));
}

Value RankShards::ownRows(Value whole, EntryReads &reads, OpBuilder &builder) const {
  GraphBuilder b(whole.getLoc(), builder);
  Value first = firstRow(reads, builder);
  Value offsets = b.make<graph::IotaOp>(ArrayRef<int64_t>{rows.most()}, int64_t{0});
  Value indices = b.add(b.broadcastLike(first, offsets), offsets);
  Value table = b.reshape(whole, {rows.rows, columns});
  auto gather = b.create<graph::GatherOp>(table, indices, int64_t{0});
  gather->setAttr(ownRowsAttr, b.getUnitAttr());
  return gather.getY();
}

Value RankShards::sumOwnRows(Value local, StringRef name, OpBuilder &builder) const {
  GraphBuilder b(local.getLoc(), builder);
  return b.make<graph::ReduceScatterOp>(b.reshape(local, {rows.rows, columns}), name,
                                        rows.ranks);
}

Value RankShards::gatherRows(Value own, StringRef name, OpBuilder &builder) const {
  GraphBuilder b(own.getLoc(), builder);
  return b.make<graph::AllGatherOp>(own, name, rows.ranks, rows.rows);
}

Value RankShards::squares(Value gradient, StringRef name, OpBuilder &builder) const {
  GraphBuilder b(gradient.getLoc(), builder);
  Value wide = b.cast(gradient, b.getF64Type());
  if (!hasRows())
    return b.sumAll(b.square(wide));
  if (!isShared())
    wide = b.reshape(wide, {rows.rows, columns});
  Value ofRows = b.sum(b.square(wide), {1}, /*keep=*/false);
  return b.sumAll(isShared() ? gatherRows(ofRows, name, builder) : ofRows);
}

} // namespace sluice
