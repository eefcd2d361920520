#pragma once
// Which sets of core operations are one generated kernel, and how that kernel walks its
// data.
//
// The domain of a region is the shape that every value in it maps onto: each dimension of
// a value is a dimension of the domain, or absent (size 1, dropped by a reduction, not
// yet broadcast). Domain dimensions that all accesses treat alike are collapsed, so what
// is left is one of four ways to walk (`*`: the dimensions whose index a unit fixes):
//
//   Flat      [N]                  no reduction; a unit is 4096 consecutive elements
//   Rows      [*..., C]            reductions over C (softmax, layer norm); a unit is a
//   row Columns   [*..., R, *..., C]   reductions over R (bias gradients, softmax along a
//                                  middle axis); a unit is 64 columns of C, all of R
//   Channels  [*..., R0, *..., R1] reductions over R0 and R1 (batch norm)
//
// A concatenation that a region reads is read from its parts: which one is decided by a
// dimension that the unit fixes. A slice is read where it lies in the larger tensor.
//
// A unit makes several passes over its data: a pass ends where the result of a reduction
// is first needed.

#include "ir/graph/Graph.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

#include <compare>
#include <cstdint>

namespace sluice {

/// How a kernel goes through its domain.
enum class WalkKind { Flat, Rows, Columns, Channels };

/// A set of domain dimensions: bit i is dimension i.
using DimMask = uint32_t;

/// Where a tensor that is longer or shorter than the domain lies along one dimension:
/// index i of the dimension is index i + start of the tensor's.
struct DimWindow {
  int dim = -1; // none: as long as the domain
  int64_t extent = 0, start = 0;
  bool isPiece = false; // of a concatenation: the walk decides where it is read

  auto operator<=>(const DimWindow &) const = default;
};

/// How one value lies in the domain.
struct RegionValue {
  DimMask shape = 0;   // dimensions that its type has
  DimMask support = 0; // dimensions along which its elements differ
  bool inner = false;  // differs within a unit's walk; else computed once per unit
  int pass =
      -1; // inner: first pass that can compute it; else: it is known after this one
  DimWindow window = {}; // of a leaf
};

/// A value that a later pass needs and that is not computed again.
struct KeptValue {
  int slot = -1; // of the scratch; -1: it is an output, read it back
  int pass = 0;  // the one that computes it
};

struct RegionDomain {
  static constexpr int64_t flatUnit = 4096;   // elements of a unit of a Flat region
  static constexpr int64_t stripColumns = 64; // columns of a unit of a Columns region
  static constexpr int64_t blockRows = 64;    // rows added up before joining the total
  /// Of a chunk: enough work to hide its scheduling, small enough to share out.
  static constexpr int64_t chunkElements = 32768;

  WalkKind kind = WalkKind::Flat;
  llvm::SmallVector<int64_t> dims;      // collapsed, outermost first; empty for a scalar
  llvm::SmallVector<unsigned> unitDims; // Columns: a unit also fixes a strip of the last
  int rowDim = -1;                      // R or R0: walked index by index inside a unit
  DimMask reduced = 0;
  int64_t units = 0; // the launch's units
  int64_t chunk = 1; // units per chunk
  int passes = 0;
  int64_t slotBytes = 0;    // of one kept value
  int64_t scratchBytes = 0; // per worker; 0: the kernel takes no workspace operand

  int64_t sweepUnits = 0; // Columns: strips that go down the rows together; 0: singly
  int64_t sweepVectorBytes = 0; // scratch of one vector of sums

  llvm::SmallVector<mlir::Value> inputs;           // from outside, in order of first use
  llvm::SmallVector<mlir::Value> outputs;          // results used outside, in block order
  llvm::DenseMap<mlir::Value, RegionValue> values; // results of the operations in the set
  llvm::DenseMap<mlir::OpOperand *, RegionValue>
      leaves;                                      // uses of inputs, constants, iotas
  llvm::DenseMap<mlir::OpOperand *, int> lastRead; // leaf -> last pass that reads it
  llvm::DenseMap<mlir::Value, KeptValue> kept;
  llvm::DenseMap<mlir::Value, DimMask>
      samples; // random numbers -> dimensions of the sample

  int64_t elements() const;
  int64_t columns() const { return dims.empty() ? 1 : dims.back(); }
  DimMask allDims() const;
  DimMask lastDim() const { return dims.empty() ? 0 : DimMask{1} << (dims.size() - 1); }
  /// The dimensions that a unit walks through, one element or vector after the other.
  DimMask innerDims() const;
  /// An operand's place, whether it comes from outside or from the set.
  RegionValue operand(mlir::OpOperand &use) const;
};

/// Decides whether `ops`, operations of one block in block order, can be one kernel, and
/// how it walks. A pure function of the operations, their operands and which results are
/// used outside of the set; fails silently.
mlir::FailureOr<RegionDomain> analyseRegion(llvm::ArrayRef<mlir::Operation *> ops);
mlir::FailureOr<RegionDomain> analyseRegion(graph::RegionOp region);

/// True if the output may have the address of the input: both have the same type and full
/// shape, every use of the input has the access pattern of the output, and no pass after
/// the one that writes the output reads the input. (Within a pass the kernel reads all it
/// needs of an element before it writes that element.)
bool canUpdateInPlace(const RegionDomain &domain, mlir::Value input, mlir::Value output);
/// The same for operand `input` and result `output` of a region.
bool canUpdateInPlace(graph::RegionOp region, unsigned input, unsigned output);

} // namespace sluice
