#include "passes/lowering/Lowerings.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace sluice {

LogicalResult lowerOperation(Operation *op, ProgramBuilder &b) {
  using namespace graph;
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](RegionOp op) { return lowerRegion(op, b); })
      .Case([&](ContractOp op) { return lowerContract(op, b); })
      .Case([&](ConvOp op) { return lowerConv(op, b); })
      .Case([&](ConvInputGradOp op) { return lowerConvInputGrad(op, b); })
      .Case([&](ConvWeightGradOp op) { return lowerConvWeightGrad(op, b); })
      .Case([&](MaxPoolOp op) { return lowerMaxPool(op, b); })
      .Case([&](MaxPoolGradOp op) { return lowerMaxPoolGrad(op, b); })
      .Case([&](AvgPoolOp op) { return lowerAvgPool(op, b); })
      .Case([&](AvgPoolGradOp op) { return lowerAvgPoolGrad(op, b); })
      .Case([&](ReshapeOp op) { return lowerReshape(op, b); })
      .Case([&](TransposeOp op) { return lowerTranspose(op, b); })
      .Case([&](SliceOp op) { return lowerSlice(op, b); })
      .Case([&](PadOp op) { return lowerPad(op, b); })
      .Case([&](ConcatOp op) { return lowerConcat(op, b); })
      .Case([&](ConstantOp op) { return lowerConstant(op, b); })
      .Case([&](GatherOp op) { return lowerGather(op, b); })
      .Case([&](ScatterAddOp op) { return lowerScatterAdd(op, b); })
      .Case([&](GatherElementsOp op) { return lowerGatherElements(op, b); })
      .Case([&](ScatterElementsOp op) { return lowerScatterElements(op, b); })
      .Case([&](ArgMaxOp op) { return lowerArgMax(op, b); })
      .Case([&](CumSumOp op) { return lowerCumSum(op, b); })
      .Case([&](AttentionOp op) { return lowerAttention(op, b); })
      .Case([&](AttentionGradOp op) { return lowerAttentionGrad(op, b); })
      .Case([&](CtcLossOp op) { return lowerCtcLoss(op, b); })
      .Case([&](CtcLossGradOp op) { return lowerCtcLossGrad(op, b); })
      .Case([&](AllReduceOp op) { return lowerAllReduce(op, b); })
      .Case([&](ReduceScatterOp op) { return lowerReduceScatter(op, b); })
      .Case([&](AllGatherOp op) { return lowerAllGather(op, b); })
      .Default([](Operation *op) {
        return op->emitError("'")
               << op->getName() << "' has no kernel yet for "
               << (op->getNumResults() ? op->getResult(0).getType() : Type());
      });
}

} // namespace sluice
