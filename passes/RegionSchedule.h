#pragma once
// Divides the walk of a region's unit into passes and decides what is kept between them.

#include "passes/RegionDomain.h"

namespace sluice {

/// Sets `passes`, `kept`, `lastRead` and the scratch sizes of a domain whose values are
/// placed.
void scheduleRegion(llvm::ArrayRef<mlir::Operation *> ops, RegionDomain &domain);

/// What a pass must compute: operands of reductions, and outputs written element by
/// element.
struct PassTargets {
  llvm::SmallVector<mlir::Operation *> reductions;
  llvm::SmallVector<mlir::Value> outputs; // without duplicates
};
PassTargets passTargets(llvm::ArrayRef<mlir::Operation *> ops, const RegionDomain &domain,
                        int pass);

/// The pass that writes an output element by element.
int outputPass(const RegionDomain &domain, mlir::Value output);

/// True for a reduction that sums up anything; over dimensions of size 1 it is the value
/// itself.
bool isReduction(mlir::Operation *op, const RegionDomain &domain);

/// True if the value is not worth computing again in each pass.
bool isExpensive(mlir::Operation *op);

} // namespace sluice
