#pragma once
// The order of a region's axes: that of the value which has all of them.

#include "passes/RegionAxes.h"
#include "passes/RegionDomain.h"

namespace sluice {

struct AxisOrder {
  Axes axes; // outermost first
  llvm::DenseMap<int, unsigned> position;

  /// Bit i stands for the axis at position i.
  DimMask mask(llvm::ArrayRef<int> list) const;
};

/// Orders the axes of all values that lie somewhere; makes axes equal that nothing
/// relates but that can be walked together. Fails if some value runs along an axis that
/// the largest lacks, or in another order.
mlir::FailureOr<AxisOrder> orderAxes(llvm::ArrayRef<mlir::Operation *> ops,
                                     llvm::ArrayRef<mlir::Value> outputs,
                                     RegionAxes &axes);

} // namespace sluice
