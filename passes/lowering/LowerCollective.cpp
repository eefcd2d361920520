// What ranks do together is lowered to a launch of a placeholder, so that the order of
// launches and the sharing of bytes are decided for it as for others;
// ScheduleCollectives takes it out of the queue of launches.

#include "passes/Collectives.h"
#include "passes/lowering/Lowerings.h"

using namespace mlir;

namespace sluice {

/// Read once, by one operation, and written anew by the entry.
static bool isReplaced(graph::ReadOp read) {
  if (!read->hasOneUse())
    return false;
  int64_t reads = 0;
  bool isWritten = false;
  for (Operation &other : *read->getBlock()) {
    auto otherRead = dyn_cast<graph::ReadOp>(other);
    auto write = dyn_cast<graph::WriteOp>(other);
    reads += otherRead && otherRead.getSymbolAttr() == read.getSymbolAttr();
    isWritten |= write && write.getSymbolAttr() == read.getSymbolAttr();
  }
  return reads == 1 && isWritten;
}

static LogicalResult expectSum(Operation *op, Type element) {
  if (element.isF32() || element.isF64() || element.isInteger(64))
    return success();
  return op->emitError("'") << op->getName() << "' adds no elements of type " << element;
}

/// The bytes of an operand; of a rank that has nothing to add they are filled.
static Value operandOf(Operation *op, Value x, bool fillsResult,
                       ProgramBuilder &builder) {
  auto constant = x.getDefiningOp<graph::ConstantOp>();
  auto dense = constant ? dyn_cast<DenseElementsAttr>(constant.getValue()) : nullptr;
  if (!dense || !dense.isSplat())
    return builder.bufferOf(x);
  Value in = fillsResult ? builder.destination(op->getResult(0))
                         : builder.buffer("nothing", "gradients", x.getType());
  lowerFill(op, in, graph::tensorType(x), dense.getSplatValue<Attribute>(), builder);
  return in;
}

static void launchCollective(Operation *op, StringRef kind, const StageSpec &stage,
                             std::optional<int64_t> rows, ProgramBuilder &builder) {
  plan::LaunchOp launch = builder.launch(op, {kind.str(), 1, 1, 0}, stage);
  Builder b(op->getContext());
  launch->setAttr(collectiveNameAttr,
                  b.getStringAttr(cast<graph::Collective>(op).collectiveName()));
  launch->setAttr(collectiveKindAttr, b.getStringAttr(kind));
  launch->setAttr(elementAttr,
                  TypeAttr::get(graph::tensorType(op->getResult(0)).getElementType()));
  if (rows)
    launch->setAttr(collectiveRowCountAttr, b.getI64IntegerAttr(*rows));
}

LogicalResult lowerAllReduce(graph::AllReduceOp op, ProgramBuilder &builder) {
  auto type = graph::tensorType(op.getY());
  if (failed(expectSum(op, type.getElementType())))
    return failure();
  Value in = operandOf(op, op.getX(), /*fillsResult=*/true, builder);
  if (!builder.find(op.getY()) && reducesInPlace(op))
    builder.bind(op.getY(), in);
  Value out = builder.destination(op.getY());
  if (type.getNumElements() == 0)
    return success();
  StageSpec stage{builder.symbols.builtin(collectiveKernel), {in}, {out}, 0, {}, {}};
  if (in != out)
    stage.inPlace = {0, 0};
  launchCollective(op, "all_reduce", stage, std::nullopt, builder);
  return success();
}

LogicalResult lowerReduceScatter(graph::ReduceScatterOp op, ProgramBuilder &builder) {
  auto type = graph::tensorType(op.getX());
  if (failed(expectSum(op, type.getElementType())))
    return failure();
  Value in = operandOf(op, op.getX(), /*fillsResult=*/false, builder);
  bool isConstant = op.getX().getDefiningOp<graph::ConstantOp>() != nullptr;
  if (!isConstant && !mayOverwrite(op.getX()) && type.getNumElements() > 0) {
    Value copy = builder.buffer("summed", "gradients", type);
    builder.copy(op, in, copy, type.getNumElements(),
                 plan::elementBytes(type.getElementType()));
    in = copy;
  }
  Value out = builder.destination(op.getY());
  if (type.getNumElements() == 0)
    return success();
  // The sums come about where the operand lies.
  StageSpec stage{builder.symbols.builtin(collectiveKernel), {in}, {in, out}, 0, {}, {}};
  launchCollective(op, "reduce_scatter", stage, type.getDimSize(0), builder);
  return success();
}

LogicalResult lowerAllGather(graph::AllGatherOp op, ProgramBuilder &builder) {
  Value in = builder.bufferOf(op.getX()), out = builder.destination(op.getY());
  if (graph::tensorType(op.getY()).getNumElements() == 0)
    return success();
  StageSpec stage{builder.symbols.builtin(collectiveKernel), {in}, {out}, 0, {}, {}};
  launchCollective(op, "all_gather", stage, op.getRows(), builder);
  return success();
}

bool mayOverwrite(Value value) {
  for (; value.hasOneUse(); value = value.getDefiningOp()->getOperand(0)) {
    Operation *producer = value.getDefiningOp();
    if (auto read = dyn_cast_or_null<graph::ReadOp>(producer))
      return isReplaced(read);
    bool isView =
        isa_and_nonnull<graph::ReshapeOp>(producer) && !producer->hasAttr(copyAttr);
    if (!isView)
      return producer &&
             !isa<graph::ConstantOp, graph::SliceOp, graph::TransposeOp, graph::CastOp>(
                 producer);
  }
  return false;
}

bool reducesInPlace(graph::AllReduceOp op) {
  auto read = op.getX().getDefiningOp<graph::ReadOp>();
  return read && isReplaced(read);
}

} // namespace sluice
