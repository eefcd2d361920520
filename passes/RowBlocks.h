#pragma once
// Operations that work on rows one by one, run for some of the rows. Rows are the
// elements of the leading dimensions of a tensor, however they are split up; in a block
// they are one dimension.

#include "ir/graph/Graph.h"

#include "mlir/IR/IRMapping.h"

namespace sluice {

/// On products of a block of rows of the logits: they wait for the gradients of the block
/// before, so they are no part of the forward pass.
inline constexpr llvm::StringLiteral rowBlockAttr = "row_block";

/// Leading dimensions whose sizes multiply to `rows`, the fewest; -1 if there are none.
int64_t rowDims(mlir::Value value, int64_t rows);
/// Elements of a row; -1 where rowDims is.
int64_t widthOf(mlir::Value value, int64_t rows);

/// True of what is broadcast from one row.
bool isSameForRows(mlir::Value value, int64_t rows);

/// True if each row of the only result is computed from the same row of operands, and its
/// width is one of `widths`.
bool mayRunByRows(mlir::Operation *op, int64_t rows, llvm::ArrayRef<int64_t> widths);

/// The rows [first, first + count). Values as wide as `wide` are never whole.
class RowBlock {
public:
  RowBlock(mlir::OpBuilder &builder, int64_t rows, int64_t wide, int64_t first,
           int64_t count)
      : builder(builder), rows(rows), wide(wide), first(first), count(count) {}

  /// `op`, which may run by rows or is a product of rows by a matrix, for the block.
  mlir::Operation *clone(mlir::Operation *op);
  /// The rows of a value: computed by what was cloned, or cut out. Wide ones are computed
  /// for the block only, where they can be.
  mlir::Value of(mlir::Value value);

private:
  mlir::RankedTensorType typeOf(mlir::Value value) const;
  mlir::Value operandOf(mlir::Operation *op, unsigned i);
  mlir::Value cut(mlir::Value value);

  mlir::OpBuilder &builder;
  int64_t rows, wide, first, count;
  mlir::IRMapping mapping;
};

} // namespace sluice
