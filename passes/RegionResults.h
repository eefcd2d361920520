#pragma once
// Regions with fewer results.

#include "ir/graph/Graph.h"

namespace sluice {

/// A copy before `region` that computes the results of these numbers only, from what they
/// need. Null if that is no kernel.
graph::RegionOp keepResults(graph::RegionOp region, llvm::ArrayRef<unsigned> numbers);

/// Replaces the region by one without the results that nothing reads, where that is a
/// kernel too.
void dropUnusedResults(graph::RegionOp region);

/// The operands that a result depends on; of operations other than regions all.
llvm::SmallVector<mlir::Value> sourcesOf(mlir::OpResult result);

} // namespace sluice
