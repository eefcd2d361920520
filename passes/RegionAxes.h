#pragma once
// Finds out which dimensions of the values of a region are the same axis.

#include "ir/graph/Graph.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SmallVector.h"

#include <cstdint>
#include <optional>

namespace sluice {

/// Axes by number, outermost first.
using Axes = llvm::SmallVector<int, 4>;
/// The axes of each dimension of a tensor: none for size 1, several where a reshape
/// merged them.
using TensorAxes = llvm::SmallVector<Axes, 4>;

/// Axes that may be found equal, or split because a reshape cuts a dimension.
class AxisTable {
public:
  int create(int64_t size);
  int64_t size(int axis) const { return axes[axis].size; }
  /// Replaces axes by their representatives and split ones by their parts.
  Axes resolve(llvm::ArrayRef<int> list) const;
  /// Makes two lists that cover the same elements equal.
  llvm::LogicalResult unify(llvm::ArrayRef<int> a, llvm::ArrayRef<int> b);

private:
  struct Axis {
    int64_t size;
    int same = -1;              // the axis this one was found equal to
    int outer = -1, inner = -1; // its parts
  };
  void split(int axis, int64_t outerSize);
  llvm::SmallVector<Axis> axes;
};

/// A use that reads a part of a tensor's dimension, or a tensor that is a part of what is
/// read: index i of the axis is index i + start of the tensor's own `extent`.
struct AxisWindow {
  int axis;
  int64_t extent, start;
  bool isPiece; // of a concatenation
};

/// The axes of every value of a set of operations. A use of an input has axes of its own:
/// one tensor may be read as a row here and as a column there.
struct RegionAxes {
  AxisTable table;
  llvm::DenseMap<mlir::Value, TensorAxes> values;
  llvm::DenseMap<mlir::OpOperand *, TensorAxes> leaves;
  llvm::DenseMap<mlir::Operation *, Axes> reduced;
  llvm::DenseMap<mlir::OpOperand *, AxisWindow> windows; // of leaves

  Axes flat(const TensorAxes &axes) const;
  Axes flat(mlir::Value value) const { return flat(values.find(value)->second); }
  Axes flat(mlir::OpOperand *use) const { return flat(leaves.find(use)->second); }
};

/// Which inputs run along the same axes at each of their uses. Constants never need to.
enum class SharedInputs {
  All,   // and iotas
  Large, // those of full rank: a vector may be a row here and a column there
  None,
};

/// The dimension that a slice cuts, if it takes neighbours of a single one; a piece of a
/// single element has no axis to run along.
std::optional<int64_t> slicedDimension(graph::SliceOp slice);

/// Fails if an operation is not allowed in a region or the shapes cannot be brought
/// together.
mlir::FailureOr<RegionAxes> assignAxes(llvm::ArrayRef<mlir::Operation *> ops,
                                       SharedInputs shared);

/// True for operations whose result is known without reading memory: each use stands
/// alone.
bool isGenerated(mlir::Operation *op);

} // namespace sluice
