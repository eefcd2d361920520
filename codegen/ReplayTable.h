#pragma once
// Which samples are shown again, as the plan file has it.

#include "runtime/plan_generated.h"

#include "mlir/IR/BuiltinOps.h"

#include <memory>

namespace sluice {

/// From the module's `graph.replay`; null without.
std::unique_ptr<fbs::ReplayT> replayOf(mlir::ModuleOp module);

} // namespace sluice
