#pragma once
// What several data-parallel ranks (`parallel: {data: N}`) tell each other in an update:
// gradient sums, counts, and the batch statistics that running ones follow.

#include "ir/graph/GraphBuilder.h"
#include "passes/StateSymbols.h"

namespace sluice {

/// The sum of `local` over the ranks, named alike on all.
mlir::Value sumOverRanks(mlir::Value local, llvm::StringRef name, mlir::OpBuilder &b);

/// Running statistics, written as one rank would write them that has all micro-batches of
/// all ranks in turn: what each micro-batch contributes goes to all ranks, and each rank
/// applies all of it in the same order.
class RankStatistics {
public:
  RankStatistics(StateSymbols &state, int64_t ranks, int64_t microBatches)
      : state(state), ranks(ranks), microBatches(microBatches) {}

  /// Takes the writes of buffers out of the entry that has the forward part. Fails where
  /// the forward part itself reads what they write.
  mlir::LogicalResult takeFrom(mlir::func::FuncOp entry);
  /// @micro: keeps what the micro-batch contributes until the update.
  void record(mlir::func::FuncOp micro, mlir::OpBuilder &builder);
  /// Writes the statistics at the end of an entry that ends windows. `current`: the
  /// contributions are those of the entry itself; else those that were recorded, if any.
  void apply(mlir::func::FuncOp entry, bool current, mlir::OpBuilder &builder);

private:
  /// A statistic: new = path(old, contributions).
  struct Statistic {
    mlir::StringAttr symbol;
    std::string name;                          // of the buffer in the model
    llvm::SmallVector<mlir::Operation *> path; // in order; nothing but the write needs it
    mlir::Value result;
    llvm::SmallVector<mlir::Value> olds; // reads of the buffer
    llvm::SmallVector<mlir::Value> contributions;
    llvm::SmallVector<mlir::Value> constants;
  };

  mlir::LogicalResult take(graph::WriteOp write);
  std::string slotName(const Statistic &statistic, size_t index) const;
  graph::ParameterOp slots(const Statistic &statistic, size_t index);
  graph::ParameterOp taken();
  mlir::Value gather(mlir::Value rows, llvm::StringRef name, EntryReads &reads,
                     mlir::OpBuilder &builder);
  mlir::Value gatherNothing(mlir::RankedTensorType row, llvm::StringRef name,
                            mlir::OpBuilder &builder);

  StateSymbols &state;
  int64_t ranks, microBatches;
  mlir::func::FuncOp from;
  std::vector<Statistic> statistics;
};

} // namespace sluice
