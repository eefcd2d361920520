#include "passes/NarrowReads.h"

#include "passes/ContractShape.h"

using namespace mlir;

namespace sluice {

static bool readsNarrow(OpOperand &use) {
  Operation *op = use.getOwner();
  if (isa<graph::AvgPoolOp, graph::AvgPoolGradOp, graph::ContractOp>(op))
    return true;
  return isa<graph::ScatterAddOp>(op) && use.getOperandNumber() == 1;
}

static bool widens(Operation *op) {
  auto cast = dyn_cast_or_null<graph::CastOp>(op);
  if (!cast || !cast.getElementType().isF32())
    return false;
  auto from = formatOf(graph::tensorType(cast.getX()).getElementType());
  return from && *from != format::kF32;
}

bool isReadNarrow(Operation *op) {
  return widens(op) && !op->use_empty() && llvm::all_of(op->getUses(), readsNarrow);
}

bool mayBeReadNarrow(Operation *op) {
  return widens(op) && llvm::any_of(op->getUses(), readsNarrow);
}

Value narrowSource(Value value) {
  Operation *op = value.getDefiningOp();
  return op && isReadNarrow(op) ? op->getOperand(0) : value;
}

} // namespace sluice
