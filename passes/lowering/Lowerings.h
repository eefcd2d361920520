#pragma once
// From one operation of the graph dialect to launches. Each writes its results to the
// builder's destinations.

#include "kernels/ConvParams.h"
#include "kernels/Work.h"
#include "passes/lowering/ProgramBuilder.h"

namespace sluice {

/// Lowers `op`, or emits an error that names it. Operations that only rename bytes bind
/// their results.
mlir::LogicalResult lowerOperation(mlir::Operation *op, ProgramBuilder &builder);

mlir::LogicalResult lowerContract(graph::ContractOp op, ProgramBuilder &builder);
/// A product that goes on with a sum (AddProduct.h).
mlir::LogicalResult lowerAddProduct(graph::RegionOp op, ProgramBuilder &builder);
/// A product that decodes what it reads (CodedProducts.h).
mlir::LogicalResult lowerCodedProduct(graph::RegionOp op, ProgramBuilder &builder);
/// Gives all sums of a chain of such products the bytes of the last one.
void bindAddedSums(mlir::Block &block, ProgramBuilder &builder);
mlir::LogicalResult lowerConv(graph::ConvOp op, ProgramBuilder &builder);
mlir::LogicalResult lowerConvInputGrad(graph::ConvInputGradOp op,
                                       ProgramBuilder &builder);
mlir::LogicalResult lowerConvWeightGrad(graph::ConvWeightGradOp op,
                                        ProgramBuilder &builder);
mlir::LogicalResult lowerMaxPool(graph::MaxPoolOp op, ProgramBuilder &builder);
mlir::LogicalResult lowerMaxPoolGrad(graph::MaxPoolGradOp op, ProgramBuilder &builder);
mlir::LogicalResult lowerAvgPool(graph::AvgPoolOp op, ProgramBuilder &builder);
mlir::LogicalResult lowerAvgPoolGrad(graph::AvgPoolGradOp op, ProgramBuilder &builder);
mlir::LogicalResult lowerReshape(graph::ReshapeOp op, ProgramBuilder &builder);
mlir::LogicalResult lowerTranspose(graph::TransposeOp op, ProgramBuilder &builder);
mlir::LogicalResult lowerSlice(graph::SliceOp op, ProgramBuilder &builder);
mlir::LogicalResult lowerPad(graph::PadOp op, ProgramBuilder &builder);
mlir::LogicalResult lowerConcat(graph::ConcatOp op, ProgramBuilder &builder);
mlir::LogicalResult lowerConstant(graph::ConstantOp op, ProgramBuilder &builder);
mlir::LogicalResult lowerGather(graph::GatherOp op, ProgramBuilder &builder);
mlir::LogicalResult lowerScatterAdd(graph::ScatterAddOp op, ProgramBuilder &builder);
mlir::LogicalResult lowerGatherElements(graph::GatherElementsOp op,
                                        ProgramBuilder &builder);
mlir::LogicalResult lowerScatterElements(graph::ScatterElementsOp op,
                                         ProgramBuilder &builder);
mlir::LogicalResult lowerArgMax(graph::ArgMaxOp op, ProgramBuilder &builder);
mlir::LogicalResult lowerCumSum(graph::CumSumOp op, ProgramBuilder &builder);
mlir::LogicalResult lowerCtcLoss(graph::CtcLossOp op, ProgramBuilder &builder);
mlir::LogicalResult lowerCtcLossGrad(graph::CtcLossGradOp op, ProgramBuilder &builder);
mlir::LogicalResult lowerAttention(graph::AttentionOp op, ProgramBuilder &builder);
mlir::LogicalResult lowerAttentionGrad(graph::AttentionGradOp op,
                                       ProgramBuilder &builder);
mlir::LogicalResult lowerRegion(graph::RegionOp op, ProgramBuilder &builder);
mlir::LogicalResult lowerAllReduce(graph::AllReduceOp op, ProgramBuilder &builder);
mlir::LogicalResult lowerReduceScatter(graph::ReduceScatterOp op,
                                       ProgramBuilder &builder);
mlir::LogicalResult lowerAllGather(graph::AllGatherOp op, ProgramBuilder &builder);

/// Fills `buffer` with one element of `type`.
void lowerFill(mlir::Operation *op, mlir::Value buffer, mlir::RankedTensorType type,
               mlir::Attribute element, ProgramBuilder &builder);

/// Of a convolution or one of its gradients; nothing for other operations.
std::optional<ConvGeometry> convGeometry(mlir::Operation *op);

/// Where in its operand the bytes of a slice lie as they are; nothing if it has to be
/// copied.
std::optional<int64_t> sliceOffsetBytes(graph::SliceOp op);

/// What the kernel of an attention or of its gradient does; nothing for other operations.
std::optional<KernelWork> attentionWork(mlir::Operation *op);

/// A reshape with this attribute copies: its bytes are not those of its operand.
inline constexpr llvm::StringLiteral copyAttr = "plan.copy";

/// An error unless the element type is f32, the one that the hand-written kernels compute
/// in.
mlir::LogicalResult expectF32(mlir::Operation *op, mlir::Value value);

/// How the operands and the result of `op` are stored, of kernels that also take 16 bits;
/// an error for other element types.
mlir::FailureOr<llvm::SmallVector<int64_t, 4>> formatsOf(mlir::Operation *op);

} // namespace sluice
