#pragma once
// Loss scaling (Micikevicius et al., 2018): the loss is multiplied by a power of two
// before the backward pass and gradients are divided by it after it, both exactly, so
// that small gradients do not vanish in narrow formats. An update that has seen a
// gradient that is not finite changes the scale and nothing else.
//
// State: "scale/value" f32; "scale/good_steps" i64, updates since the scale has changed;
// "scale/skipped" i64, updates that changed nothing.

#include "ir/graph/GraphBuilder.h"
#include "passes/StateSymbols.h"

namespace sluice {

struct LossScaleSpec;

/// The scale the loss of an entry is multiplied by, or null where there is none.
mlir::Value readLossScale(const LossScaleSpec &spec, StateSymbols &state,
                          EntryReads &reads, mlir::Builder &builder);

/// The elements of a gradient that are infinite or NaN, counted: no finite gradient is so
/// large that it counts.
mlir::Value countNonFinite(graph::GraphBuilder &b, mlir::Value gradient);

/// Writes the state of the scale for the next update. `finite`: i1; `norm`: the largest
/// norm of a tensor's gradient of the unscaled sum of losses (adaptive only).
void updateLossScale(const LossScaleSpec &spec, StateSymbols &state, EntryReads &reads,
                     mlir::OpBuilder &builder, mlir::Value finite, mlir::Value norm);

/// How the scale moves, for the report.
std::string lossScaleText(const LossScaleSpec &spec);

/// Running statistics of updates that are skipped stay as they were, though the forward
/// part has run. In one entry: every write of a buffer waits for `finite`.
void keepBuffers(mlir::func::FuncOp entry, EntryReads &reads, mlir::OpBuilder &builder,
                 mlir::Value finite);
/// Over several entries: @micro keeps what buffers are before the window's first
/// micro-batch ("restore/NAME"), @update writes it back unless all gradients are finite.
std::vector<graph::ParameterOp> saveBuffers(mlir::func::FuncOp micro, StateSymbols &state,
                                            mlir::OpBuilder &builder);
void restoreBuffers(llvm::ArrayRef<graph::ParameterOp> buffers, StateSymbols &state,
                    EntryReads &reads, mlir::OpBuilder &builder, mlir::Value finite);

} // namespace sluice
