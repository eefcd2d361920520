#pragma once
// Gradient sums in the order in which N data-parallel ranks would add them
// (`accumulate: {count: N * M, as_ranks: N}`): M micro-batches in order per rank, then a
// binomial tree over the ranks.
//
// The tree: in round s = 0, 1, ... rank r with r mod 2^(s+1) = 0 takes the sum of rank
// r + 2^s, if there is one, as its right operand. Here one rank plays all of them in
// turn, so that a finished sum of 2^s ranks only has to wait for its right neighbour: one
// buffer per round, "sum<2^s>/NAME", as the digits of a binary counter. Sums start from
// +0, so a rank without a micro-batch (in a partial window) adds nothing, not even a
// sign.

#include "ir/graph/GraphBuilder.h"
#include "passes/StateSymbols.h"

namespace sluice {

class RankSums {
public:
  RankSums(StateSymbols &state, int64_t ranks) : state(state), ranks(ranks) {}

  /// Rounds of the tree: buffers beside the running sum of the rank that is next.
  int64_t rounds() const;

  /// @close_rank: the running sum of rank control/rank, not the last, goes into the tree.
  void buildCloseEntry(mlir::ModuleOp module,
                       llvm::ArrayRef<graph::ParameterOp> accumulators);
  /// The sum over all ranks, at the builder's place.
  mlir::Value total(graph::ParameterOp accumulator, EntryReads &reads,
                    mlir::OpBuilder &builder);
  /// Empties the running sum and what the tree holds.
  void clear(graph::ParameterOp accumulator, mlir::OpBuilder &builder);

private:
  graph::ParameterOp waiting(graph::ParameterOp accumulator, int64_t round);
  void close(graph::ParameterOp accumulator, mlir::Value rank, EntryReads &reads,
             mlir::OpBuilder &builder);

  StateSymbols &state;
  int64_t ranks;
};

} // namespace sluice
