#pragma once
// Scales of whole tensors from the largest magnitudes of the updates before (delayed
// scaling, Micikevicius et al., "FP8 formats for deep learning", 2022): a value is read
// once, to be stored, and what is larger than it was before counts as the largest number.

#include "kernels/StoredFormats.h"
#include "passes/StateSymbols.h"

namespace sluice {

/// State "scale/KEY/history": one largest magnitude per update, the newest first; under
/// accumulation, or with ranks, "scale/KEY/window": the largest of the micro-batches so
/// far. Scales
/// change with updates alone, so that they do not depend on what runs again within one.
class DelayedScale {
public:
  static constexpr int64_t length = 16;

  /// Declares the state; `firstLargest` fills the history.
  DelayedScale(const std::string &key, double firstLargest, llvm::StringRef group,
               StateSymbols &state, mlir::MLIRContext *context);
  /// State that is declared already.
  DelayedScale(graph::ParameterOp history, StateSymbols &state)
      : history(history), state(state) {}
  /// Null where a key has none.
  static graph::ParameterOp historyOf(const std::string &key, const StateSymbols &state);

  /// f32 [1]: the largest of the history over the largest number of the format; 1 as long
  /// as there is none.
  mlir::Value value(StoredFormat format, EntryReads &reads, mlir::OpBuilder &builder);

  /// Puts the largest magnitude of a value into the history, or into the window (of
  /// several micro-batches or ranks).
  /// With `moves` (i1, scalar) only where it holds.
  void observe(mlir::Value value, bool isWindow, mlir::Value moves, EntryReads &reads,
               mlir::OpBuilder &builder);

  /// Behind an update: what windows have goes into the histories, the largest of all
  /// `ranks` on each. In @step, which has one micro-batch, what it found itself.
  static void closeWindows(mlir::func::FuncOp update, int64_t ranks, StateSymbols &state);

private:
  graph::ParameterOp history;
  StateSymbols &state;
};

} // namespace sluice
