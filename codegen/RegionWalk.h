#pragma once
// Writes the loops of a region's kernel.

#include "codegen/ValueEmitter.h"
#include "passes/RegionSchedule.h"

namespace sluice {

class RegionWalk {
public:
  using Value = mlir::Value;

  RegionWalk(LaneBuilder &lanes, const RegionDomain &domain,
             llvm::ArrayRef<mlir::Operation *> ops, ValueEmitter &values, Value scratch);

  /// Writes the walk over the units [begin, end).
  void emit(Value begin, Value end);
  /// The same for an elastic region over so many elements.
  void emitElastic(Value begin, Value end, Value elements);
  /// The same over tiles of a matrix; input `tiled` lies tile by tile. `params` are the
  /// values of TileParams.
  void emitTiles(Value begin, Value end, unsigned tiled, llvm::ArrayRef<Value> params);

private:
  /// One value per reduction of the pass.
  using Accumulators = llvm::SmallVector<Value>;
  using Pass = PassTargets;

  void emitUnits(Value begin, Value end);
  void emitStrips(Value unit, llvm::function_ref<void()> body);
  void emitPasses();
  void emitFlat(Value begin, Value end);
  void emitRun(Value from, Value to);
  void emitRowPass(const Pass &pass);
  void emitColumnPass(const Pass &pass);
  void walkColumns(const Pass &pass, Value row, Accumulators &accumulators);
  void walkRows(const Pass &pass, Value from, Value to, Accumulators &accumulators);
  void emitPoint(const Pass &pass, Point &point,
                 llvm::MutableArrayRef<Value> accumulators);
  static Combine combineOf(mlir::Operation *reduction);
  static mlir::Type elementOf(mlir::Operation *reduction);
  Accumulators neutral(const Pass &pass, int64_t copies);
  int64_t unrolling() const;
  void repeat(int64_t count, llvm::function_ref<void(int64_t)> emitVector);

  // ColumnSweep.cpp: several strips go down the rows together.
  void emitSweeps(Value begin, Value end);
  void emitSweep(Value from, Value to);
  enum class Sum { Block, Total };
  Value sumAddress(Value unit, size_t reduction, int vector, Sum which);
  Accumulators loadSums(Value unit, Sum which);
  void storeSums(Value unit, Sum which, const Accumulators &sums);
  void addBlock(Value unit);

  using LoopBody = llvm::function_ref<void(Value index, Accumulators &carried)>;
  /// for (index = from; index < to; index += step), carrying values.
  void loop(Value from, Value to, int64_t step, Accumulators &carried, LoopBody body);

  LaneBuilder &lanes;
  mlir::ImplicitLocOpBuilder &b;
  const RegionDomain &domain;
  llvm::ArrayRef<mlir::Operation *> ops;
  ValueEmitter &values;
  Value scratch; // null: none
  llvm::SmallVector<Pass> passes;
  llvm::SmallVector<Value>
      stripColumns; // first column of each vector of a unit (Columns)
  llvm::SmallVector<int64_t> stripLanes;
  Value sweepStart; // first unit of the sweep
  int currentPass = 0;
};

} // namespace sluice
