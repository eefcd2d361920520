#pragma once
// Writes the loops of a region's kernel.

#include "codegen/ValueEmitter.h"
#include "passes/RegionSchedule.h"

namespace sluice {

class RegionWalk {
public:
  using Value = mlir::Value;

  RegionWalk(LaneBuilder &lanes, const RegionDomain &domain,
             llvm::ArrayRef<mlir::Operation *> ops, ValueEmitter &values);

  /// Writes the walk over the units [begin, end).
  void emit(Value begin, Value end);

private:
  /// One value per reduction of the pass.
  using Accumulators = llvm::SmallVector<Value>;
  using Pass = PassTargets;

  void emitUnits(Value begin, Value end);
  void emitStrips(Value unit);
  void emitPasses();
  void emitFlat(Value begin, Value end);
  void emitRowPass(const Pass &pass);
  void emitColumnPass(const Pass &pass);
  void walkColumns(const Pass &pass, Value row, Accumulators &accumulators);
  Accumulators walkBlock(const Pass &pass, Value from, Value to);
  void emitPoint(const Pass &pass, Point &point,
                 llvm::MutableArrayRef<Value> accumulators);
  Accumulators neutral(const Pass &pass, int64_t copies);
  int64_t unrolling(const Pass &pass) const;

  using LoopBody = llvm::function_ref<void(Value index, Accumulators &carried)>;
  /// for (index = from; index < to; index += step), carrying values.
  void loop(Value from, Value to, int64_t step, Accumulators &carried, LoopBody body);

  LaneBuilder &lanes;
  mlir::ImplicitLocOpBuilder &b;
  const RegionDomain &domain;
  llvm::ArrayRef<mlir::Operation *> ops;
  ValueEmitter &values;
  llvm::SmallVector<Pass> passes;
  llvm::SmallVector<Value>
      stripColumns; // first column of each vector of a unit (Columns)
  llvm::SmallVector<int64_t> stripLanes;
  int currentPass = 0;
};

} // namespace sluice
