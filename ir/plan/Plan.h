#pragma once
// The plan dialect: when each launch runs and at which byte each value lies.

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include <optional>

namespace sluice::plan {
class QueueOp;
} // namespace sluice::plan

#include "ir/plan/PlanDialect.h.inc"
#define GET_TYPEDEF_CLASSES
#include "ir/plan/PlanTypes.h.inc"
#define GET_OP_CLASSES
#include "ir/plan/Plan.h.inc"

namespace sluice::plan {

/// Where a buffer value lies: a `plan.buffer` or `plan.state_buffer`, and bytes in it.
struct BufferRange {
  mlir::Operation *root = nullptr; ///< BufferOp or StateBufferOp
  int64_t offset = 0;              ///< from the start of the root
  int64_t size = 0;
};

/// On a state buffer: the bytes of its tensor, which are asked for so often that looking
/// the tensor up took a third of the time of planning.
inline constexpr llvm::StringLiteral stateBytesAttr = "bytes";
StateBufferOp createStateBuffer(mlir::OpBuilder &builder, mlir::Location loc,
                                mlir::FlatSymbolRefAttr symbol);

/// The tensor of the state that a buffer of a program stands for; null if there is none.
StateOp stateOf(StateBufferOp buffer);

/// Follows slices to the root. The size of a state buffer is that of its tensor.
BufferRange rangeOf(mlir::Value buffer);

/// On a collective that deals out rows: how many rows each of its buffers has over all
/// ranks (ir/graph/RankRows.h).
inline constexpr llvm::StringLiteral collectiveRowsAttr = "rows";

/// Bytes of `plan.red_zone` on the module around `op`: left untouched before and behind
/// every buffer of the step, and between the tensors of the state. 0 but in tests.
int64_t redZoneOf(mlir::Operation *op);

/// Bytes of one element in memory: i1 takes one byte. 0 for types that no plan stores.
int64_t elementBytes(mlir::Type elementType);
/// Bytes of a tensor without padding.
int64_t tensorBytes(mlir::Type tensorType);

} // namespace sluice::plan
