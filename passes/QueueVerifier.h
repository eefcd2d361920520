#pragma once
// What copies beside launches must keep to.

#include "ir/plan/Plan.h"

namespace sluice {

/// True for a host buffer, and a state buffer of a tensor in the host's memory.
bool isOnHost(mlir::Operation *root);

/// Proves that each copy goes between the two memories, that every wait is for a signal
/// that comes, that of two accesses to the same bytes of which one is a copy and one of
/// them writes the queues fix the order, and that live ranges last until copies are done.
mlir::LogicalResult verifyQueues(plan::ProgramOp program);

/// The same for collectives, which no copy may meet.
mlir::LogicalResult verifyCollectives(plan::ProgramOp program);

} // namespace sluice
