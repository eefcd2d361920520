#pragma once
// Writes the code of one thread of a region's CUDA kernel: which vectors it takes, and
// how the threads of a unit put their sums together.
//
// A sum's order follows from the region's shape alone: each thread adds up its vectors in
// order, then its lanes, then the lanes of a warp (16, 8, 4, 2 and 1 apart), then the
// warps two by two; along columns the threads of a column two by two.

#include "codegen/ValueEmitter.h"
#include "codegen/cuda/BlockLayout.h"
#include "passes/RegionSchedule.h"

namespace sluice::cuda {

class BlockWalk {
public:
  using Value = mlir::Value;

  /// `tail`: values of single elements, for what is left of a Flat region.
  BlockWalk(const RegionDomain &domain, const BlockLayout &layout,
            llvm::ArrayRef<mlir::Operation *> ops, ValueEmitter &values,
            ValueEmitter &tail, LaneBuilder &lanes, LaneBuilder &single, Value shared);

  void emit();

  /// Where a unit's kept values lie: to be among the emitters' buffers.
  static Value keptBase(LaneBuilder &lanes, const BlockLayout &layout, Value shared);

private:
  using Accumulators = llvm::SmallVector<Value>;

  void emitFlat();
  void emitUnit(Value unit);
  void emitPass(const PassTargets &pass);
  void emitPoint(const PassTargets &pass, Point &point,
                 llvm::MutableArrayRef<Value> accumulators);
  void walk(const PassTargets &pass, Accumulators &accumulators);
  void storeUnitOutputs();
  Value joinWarp(Combine kind, Value scalar);
  Value joinWarps(Combine kind, Value scalar);
  Value joinRows(Combine kind, Value accumulator);
  Value moved(Value scalar, int64_t distance);
  Value partial(int64_t index);
  void barrier();

  Value constant(int64_t value) { return lanes.constant(value); }
  Value less(Value x, Value y);
  Value add(Value x, Value y);
  Value mul(Value x, int64_t y);
  Value div(Value x, int64_t y);
  Value rem(Value x, int64_t y);
  void when(Value condition, llvm::function_ref<void()> body);
  void loop(Value from, Value to, int64_t step, Accumulators &carried,
            llvm::function_ref<void(Value, Accumulators &)> body);

  const RegionDomain &domain;
  const BlockLayout &layout;
  llvm::ArrayRef<mlir::Operation *> ops;
  ValueEmitter &values, &tail;
  LaneBuilder &lanes, &single;
  mlir::ImplicitLocOpBuilder &b;
  Value shared;        // null: none
  Value thread, block; // i64
  Value inUnit;        // the thread's number in its unit
  Value column, row;   // Columns: where the thread starts
  Value isActive;      // Columns: its column is in the tensor
  int64_t reductionsDone = 0;
};

} // namespace sluice::cuda
