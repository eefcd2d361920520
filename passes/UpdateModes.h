#pragma once
// When each group of parameters is updated (`update.mode`), once groups are known.
//
// Groups that interleave take turns: of K steps each has one, and averages over all
// samples since its last. A deferred group applies the gradient of step t at step t + d.
// On a quadratic of curvature a, w' = w - lr * a * w_(t-d) is stable for lr * a < 2 *
// sin(pi / (4 d + 2)) (PipeMare, Yang et al., 2021, Lemma 1): `safe_lr` scales the rate
// by that bound's share of the bound without a delay.

#include "passes/UpdateGroups.h"

namespace sluice {

struct TrainingSpec;

/// sin(pi / (4 * delay + 2)): 1 without a delay.
double safeRate(int64_t delay);

/// Refuses what cannot hold with the modes of the spec, naming both sides.
mlir::LogicalResult checkUpdateModes(mlir::ModuleOp module, const TrainingSpec &spec);

/// Decides phases and delays of the groups, in their order; `groupOf` has the group of
/// each of `parameters`, or -1. Marks parameters and module, and parts
/// `graph.groups` (of equal options) where their members are not updated together:
/// "default" becomes "default@P" of phase P, or "default@defer=D".
mlir::LogicalResult assignUpdateModes(mlir::ModuleOp module, const TrainingSpec &spec,
                                      llvm::MutableArrayRef<UpdateGroup> groups,
                                      llvm::ArrayRef<graph::ParameterOp> parameters,
                                      llvm::ArrayRef<int32_t> groupOf);

/// "interleave: 4, turn 1" or the like.
std::string describeMode(const UpdateGroup &group);

} // namespace sluice
