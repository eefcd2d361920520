#pragma once
// Philox4x32-10 in vector code: a vector of uniform numbers at a time, the same as
// kernels/Philox.h.

#include "codegen/LaneBuilder.h"

namespace sluice {

/// The i64 scalars that key a tensor of random numbers; `id` is known at compile time.
struct RandomKeyScalars {
  mlir::Value seed, update;
  int64_t id = 0;
};

/// Consecutive elements of one sample from `element`, a multiple of 4 (i64 scalars), for
/// vectors of a multiple of 4 lanes.
mlir::Value emitRandomRun(LaneBuilder &lanes, const RandomKeyScalars &key,
                          mlir::Value sample, mlir::Value element);

/// Any elements, given by lane (vectors of i64); four times the work.
mlir::Value emitRandomLanes(LaneBuilder &lanes, const RandomKeyScalars &key,
                            mlir::Value samples, mlir::Value elements);

} // namespace sluice
