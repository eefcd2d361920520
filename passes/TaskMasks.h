#pragma once
// Weights of single tasks in one model (`continual.masks`), as state and elementwise
// operations of the entries, so that they are planned, fused and saved as all else.
//
//   packnet    mask/NAME (i8) has the task that each element of a weight belongs to,
//              freeTask while none does. A task trains what is free, then keeps the
//              largest and leaves the rest to tasks behind it (Mallya & Lazebnik, 2018).
//              task/trains says which index an update may change, task/limit up to which
//              one evaluation sees weights; others are 0 to it.
//   supermask  weights stay as they are; param/NAME.score trains instead, and a weight
//              counts where its score is above 0 (Wortsman et al., 2020). The gradient
//              passes straight through that comparison. mask/TASK/NAME keeps a learned
//              task's mask, 8 elements in a byte.
//
// What trains and has no mask (biases, scales of norms), and statistics, are each task's
// own: task/own/NAME has a copy for every task. runtime/continual/TaskMasks changes
// tasks.

#include "passes/StateSymbols.h"

namespace sluice {

inline constexpr int64_t freeTask = 127;

/// i1 like the parameter, where the update may change it; null: everywhere.
mlir::Value trainsWhere(graph::ParameterOp parameter, StateSymbols &state,
                        EntryReads &reads, mlir::OpBuilder &builder);

/// `next` where the update may change the parameter, else `old`; null for `old`: zeros.
mlir::Value onlyWhereTrains(mlir::Value next, mlir::Value old,
                            graph::ParameterOp parameter, StateSymbols &state,
                            EntryReads &reads, mlir::OpBuilder &builder);

} // namespace sluice
