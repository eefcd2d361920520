#pragma once
// Trades the device's memory for time and the host's memory: each tensor is kept, run
// again or moved.

#include "codegen/BudgetSearch.h"

namespace sluice {

/// As tradeMemory, with moves to the host's memory beside runs more. For some plans of
/// the recompute frontier, from the one that runs nothing again to the smallest, tensors
/// leave the device one after the other (planning/Offload): together they are a frontier
/// that does not depend on the budget. Of those that fit, really placed, the fastest is
/// taken; if none fits, the smallest. `choice.offload` is for the plan pipeline.
/// `other`, if given, is the choice of another variant of the same plan, whose state lies
/// in the host's memory here too; `isSameStep`: its whole choice could be taken here.
Status tradeMemoryAndLink(mlir::ModuleOp module, const CompileOptions &options,
                          const BudgetChoice *other, bool isSameStep,
                          BudgetChoice &choice);

} // namespace sluice
