#pragma once
// What the runtime and the report have to know of clips, spikes and recalibration.

#include "passes/StateSymbols.h"

namespace sluice {

struct TrainingSpec;

/// Of the module: the rule for losses that fluctuate, a dictionary.
inline constexpr llvm::StringLiteral spikesAttr = "graph.spikes";
/// Of the module: outliers run again before they are skipped.
inline constexpr llvm::StringLiteral rerunsAttr = "graph.reruns_outliers";
/// State of the rule, which the runtime keeps and checkpoints save.
inline constexpr llvm::StringLiteral spikesState = "scale/spikes";

/// Notes what the spec says about the health of gradients, with a line of report each.
void noteGradientHealth(mlir::ModuleOp module, const TrainingSpec &spec,
                        StateSymbols &state);

} // namespace sluice
