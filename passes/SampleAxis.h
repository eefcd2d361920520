#pragma once
// Where the samples of a batch are in a value.

#include "ir/graph/Graph.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"

namespace sluice {

/// Element i (row-major) belongs to sample (i / stride) % batch. So a reshape changes
/// nothing, and a dimension may hold samples and something else, as [batch * T, ...]
/// does.
struct SampleAxis {
  enum Kind {
    None,    ///< the same for every batch
    At,      ///< each element depends on its sample alone
    Mixed,   ///< some element depends on several samples
    Unknown, ///< an operation this analysis does not know
  };
  Kind kind = None;
  int64_t stride = 0; ///< of At

  /// Dimension 0 counts samples, each the same number of rows, sample by sample. Of an
  /// unknown operation: if it has as many rows as there are samples.
  bool countsRows(mlir::RankedTensorType type, int64_t batch) const;
};

/// The axes of all values of an entry whose batched arguments are marked.
class SampleAxes {
public:
  SampleAxes(mlir::func::FuncOp entry, int64_t batch);
  SampleAxis of(mlir::Value value) const { return axes.lookup(value); }

private:
  mlir::DenseMap<mlir::Value, SampleAxis> axes;
};

} // namespace sluice
