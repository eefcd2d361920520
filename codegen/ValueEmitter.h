#pragma once
// Writes the values of a region at one point of its walk: loads what comes from memory,
// computes the rest.

#include "codegen/LaneBuilder.h"
#include "passes/RegionDomain.h"

#include "llvm/ADT/DenseMap.h"

#include <map>
#include <set>
#include <tuple>

namespace sluice {

/// Where the walk stands: 16 columns of one row, and what has been written for them so
/// far.
struct Point {
  Point() = default;
  Point(mlir::Value row, mlir::Value column, int64_t lanes, int vector = 0)
      : row(row), column(column), lanes(lanes), vector(vector) {}

  mlir::Value row;    // index along the domain's rowDim
  mlir::Value column; // of the first lane
  int64_t lanes = LaneBuilder::lanes;
  mlir::Value mask; // lanes whose number is known when it runs; null: the first `lanes`
  int vector = 0;   // Columns: which vector of the unit's strip
  llvm::DenseMap<mlir::Value, mlir::Value> values;
  std::map<std::tuple<unsigned, DimMask, DimWindow>, mlir::Value> loads; // by input
};

class ValueEmitter {
public:
  using Value = mlir::Value;

  /// `buffers`: the kernel's operands, inputs then outputs then the workspace.
  ValueEmitter(LaneBuilder &lanes, const RegionDomain &domain,
               llvm::ArrayRef<mlir::Operation *> ops, llvm::ArrayRef<Value> buffers);

  /// Writes what is the same for all units.
  void enterKernel();
  /// Columns: the unit's own column of its one vector is `column`; kept values lie there.
  void setStripOffset(Value column) { stripOffset = column; }
  /// From here on the elements of input `number` lie `elements` elements behind their
  /// places.
  void shiftInput(unsigned number, Value elements);
  /// Starts a unit; a vector of the strip for each of `stripColumns` (one without a
  /// column, except for Columns).
  void enterUnit(Value unit, llvm::ArrayRef<Value> stripColumns,
                 llvm::ArrayRef<int64_t> stripLanes);
  /// Writes the per-unit values that are known after a pass (-1: at the start).
  void finishPass(int pass);
  void setReduced(Value result, llvm::ArrayRef<Value> vectors);

  /// Loads and stores of whole vectors of every leaf are aligned to their size where the
  /// shapes say so: buffers then start at multiples of 16 bytes.
  void assumeAligned() { aligned = true; }
  void setPass(int pass) { currentPass = pass; }
  Value value(Value v, Point &point);
  Value operand(mlir::OpOperand &use, Point &point);
  /// Writes the outputs `values` and the values kept in this pass; all of them were read
  /// or computed before.
  void store(llvm::ArrayRef<Value> values, Point &point);
  void storeUnitOutputs();
  /// Prefetches from all inputs of full shape what lies `distance` elements after the
  /// point.
  void prefetch(Point &point, int64_t distance);

  int vectorsPerUnit() const { return static_cast<int>(unitPoints.size()); }

private:
  /// The dimensions of a tensor, as long as the domain's but for the window.
  struct Access {
    Access(DimMask mask, DimWindow window = {}) : mask(mask), window(window) {}
    DimMask mask;
    DimWindow window;
    auto operator<=>(const Access &) const = default;
  };
  /// Where the unit reads a concatenation.
  struct Joined {
    Value buffer, base, rowStride; // in elements
  };

  Value emit(mlir::Operation *op, DimMask support, Point &point);
  // JoinedLoads.cpp
  void choosePieces();
  llvm::SmallVector<Value, 3> choosePiece(mlir::Operation *concat, unsigned from,
                                          unsigned to, Value index);
  Value loadJoined(mlir::Operation *concat, Point &point);
  Value emitRandom(mlir::Operation *op, Point &point);
  Value maskOf(const Point &point);
  Value loadLeaf(Value input, const RegionValue &leaf, Point &point);
  Value loadElements(Value address, Value v, DimMask shape, const Point &point,
                     int64_t alignment = 0);
  int64_t alignmentOf(const Access &access, mlir::Type element) const;
  Value loadKept(Value v, const KeptValue &kept, Point &point);
  Value scratchAddress(int slot, Point &point);
  Value outputAddress(size_t output, Point &point);
  Value unitIndex(unsigned dim);
  Value emitUnitBase(const Access &access);
  Value elementIndex(const Access &access, Point &point);
  int64_t stride(const Access &access, unsigned dim) const;
  int64_t windowStart(const Access &access) const;
  void storeOutput(size_t output, Value vector, Point &point);

  LaneBuilder &lanes;
  mlir::ImplicitLocOpBuilder &b;
  const RegionDomain &domain;
  llvm::ArrayRef<mlir::Operation *> ops;
  llvm::ArrayRef<Value> buffers;
  llvm::DenseMap<Value, unsigned> inputNumber;
  llvm::SmallDenseMap<unsigned, Value> shifts; // of inputs, in elements
  Value unit;
  Value stripOffset; // null: vectors follow each other
  bool aligned = false;
  int currentPass = 0;
  Point kernelPoint;
  llvm::SmallVector<Point, 4> unitPoints;
  std::set<Access> accesses; // that the unit is the same for
  std::map<Access, Value> unitBases;
  llvm::DenseMap<mlir::Operation *, Joined> joined;
};

} // namespace sluice
