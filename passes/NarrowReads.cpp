#include "passes/NarrowReads.h"

#include "passes/ContractShape.h"

using namespace mlir;

namespace sluice {

static bool widens(Operation *op) {
  auto cast = dyn_cast_or_null<graph::CastOp>(op);
  if (!cast || !cast.getElementType().isF32())
    return false;
  auto from = formatOf(graph::tensorType(cast.getX()).getElementType());
  return from && *from != format::kF32;
}

static bool isOfBf16(Value value) {
  Operation *op = value.getDefiningOp();
  Value stored = widens(op) ? op->getOperand(0) : value;
  return graph::tensorType(stored).getElementType().isBF16();
}

/// A convolution of f32 may not become one of bf16 by bf16, which has bits of its own:
/// whether both casts have no other reader would decide. Its second operand is widened.
static bool convReadsNarrow(OpOperand &use) {
  Operation *op = use.getOwner();
  Value second = op->getOperand(1);
  if (!isOfBf16(op->getOperand(0)) || !isOfBf16(second))
    return true;
  return use.getOperandNumber() == 0 &&
         graph::tensorType(second).getElementType().isF32();
}

static bool readsNarrow(OpOperand &use) {
  Operation *op = use.getOwner();
  if (isa<graph::AvgPoolOp, graph::AvgPoolGradOp, graph::ContractOp>(op))
    return true;
  if (isa<graph::ConvOp, graph::ConvInputGradOp, graph::ConvWeightGradOp>(op))
    return convReadsNarrow(use);
  return isa<graph::ScatterAddOp>(op) && use.getOperandNumber() == 1;
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
