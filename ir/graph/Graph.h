#pragma once
// The graph dialect: what is computed. Operations are grouped in families, one .td and
// .cpp each.

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace sluice::graph {
class Evaluation;

/// How an operation takes part in mixed precision.
enum class PrecisionKind {
  Wide,    ///< computes in f32 from whatever it is given; its result stays exact
  Product, ///< takes operands of 16 bits, sums in f32; its result is rounded to 16 bits
  Moves ///< only moves or selects elements of operand 0 (concat: of all): commutes with
        ///< rounding
};

/// What an op's `buildGradient` sees: the cotangents of its results (null where zero) and
/// which operands need one. The gradient is that of a real-valued loss.
class GradientContext {
public:
  GradientContext(llvm::ArrayRef<mlir::Value> resultCotangents,
                  llvm::ArrayRef<bool> needed)
      : resultCotangents(resultCotangents), needed(needed),
        operandCotangents(needed.size()) {}
  mlir::Value cotangent(unsigned result = 0) const { return resultCotangents[result]; }
  bool needs(unsigned operand) const { return needed[operand]; }
  void set(unsigned operand, mlir::Value value) { operandCotangents[operand] = value; }
  llvm::ArrayRef<mlir::Value> gradients() const { return operandCotangents; }

private:
  llvm::ArrayRef<mlir::Value> resultCotangents;
  llvm::ArrayRef<bool> needed;
  llvm::SmallVector<mlir::Value> operandCotangents;
};
} // namespace sluice::graph

#include "ir/graph/GraphDialect.h.inc"
#include "ir/graph/GraphInterfaces.h.inc"

#define GET_OP_CLASSES
#include "ir/graph/State.h.inc"
#define GET_OP_CLASSES
#include "ir/graph/Elementwise.h.inc"
#define GET_OP_CLASSES
#include "ir/graph/Narrow.h.inc"
#define GET_OP_CLASSES
#include "ir/graph/Stored.h.inc"
#define GET_OP_CLASSES
#include "ir/graph/Shape.h.inc"
#define GET_OP_CLASSES
#include "ir/graph/Contract.h.inc"
#define GET_OP_CLASSES
#include "ir/graph/Attention.h.inc"
#define GET_OP_CLASSES
#include "ir/graph/Reduce.h.inc"
#define GET_OP_CLASSES
#include "ir/graph/Index.h.inc"
#define GET_OP_CLASSES
#include "ir/graph/Normalize.h.inc"
#define GET_OP_CLASSES
#include "ir/graph/Pool.h.inc"
#define GET_OP_CLASSES
#include "ir/graph/Train.h.inc"
#define GET_OP_CLASSES
#include "ir/graph/Optimizer.h.inc"
#define GET_OP_CLASSES
#include "ir/graph/Collective.h.inc"

namespace sluice::graph {
inline mlir::RankedTensorType tensorType(mlir::Value value) {
  return mlir::cast<mlir::RankedTensorType>(value.getType());
}

/// On the declarations of state that ranks hold in shards: the whole tensor's shape, and
/// how many rows it has that are dealt out (RankRows.h), of equally many elements.
inline constexpr llvm::StringLiteral wholeShapeAttr = "graph.whole";
inline constexpr llvm::StringLiteral shardRowsAttr = "graph.shard_rows";
} // namespace sluice::graph
