#pragma once
// What makes up for weights having moved between the step that computes a gradient and
// the one that applies it.
//
// dc_asgd (Zheng et al., 2017): the gradient at the weights of now, to first order with
// the diagonal of its outer product in place of the Hessian: g + lambda * g * g * (w_now
// - w_old). Adaptive: lambda / sqrt(ms + 1e-7), where ms = decay * ms + (1 - decay) * g
// * g is the state "opt/NAME/dc_mean_square". momentum (SpecTrain, Chen et al., 2018):
// gradients are computed with the weights that d more steps like the last would give.

#include "ir/graph/GraphBuilder.h"
#include "passes/StateSymbols.h"

namespace sluice {

struct TrainingSpec;

/// Whether the spec's compensation can be had for all deferred parameters; names the one
/// for which it cannot.
mlir::LogicalResult checkCompensation(mlir::ModuleOp module, const TrainingSpec &spec,
                                      StateSymbols &state);

/// dc_asgd: the mean gradient `g`, corrected.
mlir::Value compensate(graph::ParameterOp parameter, mlir::Value g, mlir::Value old,
                       const TrainingSpec &spec, StateSymbols &state, EntryReads &reads,
                       mlir::OpBuilder &builder);

/// momentum: what the entry has computed so far with a deferred parameter, it computes
/// with the predicted weights instead.
void predictWeights(mlir::func::FuncOp entry, StateSymbols &state);

} // namespace sluice
