#pragma once
// The groups of parameters, with their hyper-parameters and schedules, as the plan file
// has them.

#include "runtime/plan_generated.h"

#include "mlir/IR/BuiltinOps.h"

#include <memory>
#include <vector>

namespace sluice {

/// From the module's `graph.groups`.
std::vector<std::unique_ptr<fbs::ParamGroupT>> groupsOf(mlir::ModuleOp module);
/// From its `graph.spikes`; null without.
std::unique_ptr<fbs::SpikeRuleT> spikesOf(mlir::ModuleOp module);
/// From its `graph.changes`, or those of a group; none of null.
std::vector<std::unique_ptr<fbs::HyperChangeT>> changesOf(mlir::ArrayAttr changes);

} // namespace sluice
