#pragma once
// How many samples of a micro-batch are replayed, for the plan and its report.

#include "ir/TrainingSpec.h"

#include "mlir/IR/BuiltinOps.h"

namespace sluice {

/// Where the module says it (a dictionary).
inline constexpr llvm::StringLiteral replayAttr = "graph.replay";

/// Writes `graph.replay`; nothing without `continual.replay`. Refused where a micro-batch
/// has no room for both kinds of samples.
mlir::LogicalResult describeReplay(mlir::ModuleOp module, const ReplaySpec &replay,
                                   int64_t batch);

} // namespace sluice
