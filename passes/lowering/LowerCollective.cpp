// What ranks do together is lowered to a launch of a placeholder, so that the order of
// launches and the sharing of bytes are decided for it as for others;
// ScheduleCollectives takes it out of the queue of launches.

#include "passes/Collectives.h"
#include "passes/lowering/Lowerings.h"

using namespace mlir;

namespace sluice {

LogicalResult lowerAllReduce(graph::AllReduceOp op, ProgramBuilder &builder) {
  auto type = graph::tensorType(op.getY());
  Type element = type.getElementType();
  if (!element.isF32() && !element.isF64() && !element.isInteger(64))
    return op->emitError("'") << op->getName() << "' adds no elements of type "
                              << element;
  auto constant = op.getX().getDefiningOp<graph::ConstantOp>();
  auto dense = constant ? dyn_cast<DenseElementsAttr>(constant.getValue()) : nullptr;
  Value in;
  if (dense && dense.isSplat()) { // of a rank that has nothing to add
    in = builder.destination(op.getY());
    lowerFill(op, in, type, dense.getSplatValue<Attribute>(), builder);
  } else {
    in = builder.bufferOf(op.getX());
  }
  if (!builder.find(op.getY()) && reducesInPlace(op))
    builder.bind(op.getY(), in);
  Value out = builder.destination(op.getY());
  if (type.getNumElements() == 0)
    return success();
  StageSpec stage{builder.symbols.builtin(collectiveKernel), {in}, {out}, 0, {}, {}};
  if (in != out)
    stage.inPlace = {0, 0};
  plan::LaunchOp launch = builder.launch(op, {"all_reduce", 1, 1, 0}, stage);
  launch->setAttr(collectiveNameAttr, op.getNameAttr());
  launch->setAttr(elementAttr, TypeAttr::get(element));
  return success();
}

bool reducesInPlace(graph::AllReduceOp op) {
  auto read = op.getX().getDefiningOp<graph::ReadOp>();
  if (!read || !read->hasOneUse())
    return false;
  int64_t reads = 0;
  bool isWritten = false;
  for (Operation &other : *op->getBlock()) {
    auto otherRead = dyn_cast<graph::ReadOp>(other);
    auto write = dyn_cast<graph::WriteOp>(other);
    reads += otherRead && otherRead.getSymbolAttr() == read.getSymbolAttr();
    isWritten |= write && write.getSymbolAttr() == read.getSymbolAttr();
  }
  return reads == 1 && isWritten;
}

} // namespace sluice
