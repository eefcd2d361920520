#pragma once
// Which dimensions of a value grow and shrink with a dimension of an input: what an
// input was filled up with can then be left out of the outputs again.

#include "ir/graph/Graph.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

namespace sluice {

/// length -> floor((length * mul + add) / div).
struct LengthStep {
  int64_t mul = 1, add = 0, div = 1;
  friend bool operator==(const LengthStep &, const LengthStep &) = default;
};

/// Element i (row-major) of the value lies at position (i / stride) % size of an axis. Of
/// an input that is smaller along `dimension`, by `steps` in turn, so many positions are
/// real: the first ones.
struct FilledAxis {
  unsigned argument = 0;
  int64_t dimension = 0; // of the argument
  int64_t stride = 1, size = 1;
  llvm::SmallVector<LengthStep, 1> steps;
  friend bool operator==(const FilledAxis &, const FilledAxis &) = default;
};

/// Where an axis of the arguments marked `graph.fill` or `graph.ignored` goes.
class FilledAxes {
public:
  struct Trace {
    llvm::SmallVector<FilledAxis, 2> axes;
    /// Axes of which this value holds a single position, as a step of a recurrence does.
    llvm::SmallVector<FilledAxis, 1> taken;
    /// What has moved the positions in a way that is not followed, if anything.
    mlir::Operation *lost = nullptr;
  };

  /// The function's operations are core ones.
  explicit FilledAxes(mlir::func::FuncOp entry);
  const Trace &of(mlir::Value value) const;

private:
  llvm::DenseMap<mlir::Value, Trace> traces;
};

} // namespace sluice
