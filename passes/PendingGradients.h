#pragma once
// Deferred groups (`update.mode: {defer: d}`): what a step computes waits in state while
// the d - 1 steps before are applied. Slot 0 has the oldest. With several ranks a
// gradient waits as the rank's own sum and is summed over ranks by the step that applies
// it, so that the message runs beside that step's forward and backward part.
//
// State of role "pending": "pending/NAME/I", sums of gradients; "window/deferred/D/I",
// their counts of samples; "old/NAME/I", weights they were computed with.

#include "ir/graph/GraphBuilder.h"
#include "passes/StateSymbols.h"

namespace sluice {

struct CompensationSpec;

/// Steps that the gradients of a parameter wait.
int64_t delayOf(graph::ParameterOp parameter);
/// The step, modulo the period, in which a parameter that interleaves is updated; -1: in
/// all.
int64_t phaseOf(graph::ParameterOp parameter);

class PendingGradients {
public:
  PendingGradients(StateSymbols &state, EntryReads &reads, mlir::OpBuilder &builder)
      : state(state), reads(reads), builder(builder) {}

  /// Puts a sum of gradients in and takes the oldest out.
  mlir::Value exchangeSum(graph::ParameterOp parameter, mlir::Value fresh);
  /// The same of a count, which all parameters of a delay share.
  mlir::Value exchangeCount(mlir::Value fresh, int64_t delay);
  /// The weights that the gradient which is applied now was computed with, f32.
  mlir::Value oldWeights(graph::ParameterOp parameter, const CompensationSpec &how);

private:
  mlir::Value exchange(const std::string &name, mlir::Value fresh, int64_t delay,
                       llvm::StringRef group);
  mlir::Value reconstruct(graph::ParameterOp parameter, mlir::Value now);

  StateSymbols &state;
  EntryReads &reads;
  mlir::OpBuilder &builder;
  llvm::StringMap<bool> rates; // groups whose rate is kept for the next step
};

} // namespace sluice
