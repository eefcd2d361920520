#pragma once
// Parameters whose updates are shared out to ranks (`parallel: {zero: 1 | 2}`; ZeRO,
// Rajbhandari et al., 2020): a rank has the moments and the master of its rows, gets the
// sum of the gradients of these rows, updates them, and all ranks gather the weight.
//
// Rows are flat: R of C elements each in row-major order, whatever the tensor's shape.
// The norm of a gradient is summed over the elements of each row, then over the rows, by
// one rank that has all rows as by ranks that have some of them.

#include "ir/graph/GraphBuilder.h"
#include "ir/graph/RankRows.h"
#include "passes/MomentForm.h"
#include "passes/StateSymbols.h"

namespace sluice {

class RankShards {
public:
  /// All rows are with every rank, and there is no order of rows.
  RankShards() = default;
  /// How the update of a parameter can be shared out to `ranks` ranks. `reason` says why
  /// it cannot be. Depends on nothing else, so that norms do not depend on whether it is.
  static RankShards choose(graph::ParameterOp parameter, llvm::StringRef optimizer,
                           MomentForm form, int64_t ranks, StateSymbols &state,
                           std::string &reason);

  bool hasRows() const { return rows.rows > 0; }
  /// It is shared out; else only the order of sums is by rows.
  bool isShared() const { return shared; }
  /// Updates compute in the shape of rows: of what is shared out, and of what is rounded
  /// stochastically, whose random numbers count elements in rows.
  bool computesInRows() const { return shared || (hasRows() && rounds); }
  RankShards asShared() const {
    RankShards copy = *this;
    copy.shared = hasRows();
    return copy;
  }
  int64_t rowElements() const { return columns; }

  mlir::RankedTensorType wholeType(mlir::Type element) const {
    return mlir::RankedTensorType::get({rows.rows, columns}, element);
  }
  mlir::RankedTensorType shardType(mlir::Type element) const {
    return mlir::RankedTensorType::get({rows.most(), columns}, element);
  }
  /// Makes a declaration that of this rank's part of [rows] or [rows, elements]; once.
  void shard(graph::ParameterOp declared) const;

  /// The shape that updates compute in.
  mlir::RankedTensorType ownType(mlir::Type element) const {
    return shared ? shardType(element) : wholeType(element);
  }
  /// i64 scalar: this rank's first row.
  mlir::Value firstRow(EntryReads &reads, mlir::OpBuilder &builder) const;
  /// The own rows of a tensor of any shape; zeros where others have a row more.
  mlir::Value ownRows(mlir::Value whole, EntryReads &reads,
                      mlir::OpBuilder &builder) const;
  /// The own rows of the sum over ranks.
  mlir::Value sumOwnRows(mlir::Value local, llvm::StringRef name,
                         mlir::OpBuilder &builder) const;
  /// All rows, from what each rank has: [rows] or [rows, elements].
  mlir::Value gatherRows(mlir::Value own, llvm::StringRef name,
                         mlir::OpBuilder &builder) const;
  /// f64: the sum of squares of all elements; `gradient` is the whole or the own rows.
  mlir::Value squares(mlir::Value gradient, llvm::StringRef name,
                      mlir::OpBuilder &builder) const;

private:
  graph::RankRows rows;
  int64_t columns = 0;
  bool shared = false, rounds = false;
};

/// Marks the gather of the own rows of a parameter: it is no embedding.
inline constexpr llvm::StringLiteral ownRowsAttr = "graph.own_rows";

} // namespace sluice
