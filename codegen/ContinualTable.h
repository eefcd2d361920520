#pragma once
// What keeps a model from forgetting, as the plan file has it.

#include "runtime/plan_generated.h"

#include "mlir/IR/BuiltinOps.h"

#include <memory>

namespace sluice {

/// From the module's `graph.continual`; null without.
std::unique_ptr<fbs::ContinualT> continualOf(mlir::ModuleOp module);
/// From the module's `graph.masks`; null without.
std::unique_ptr<fbs::MasksT> masksOf(mlir::ModuleOp module);

} // namespace sluice
