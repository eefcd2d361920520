#pragma once
// What a launch or an operation costs on the device that a module is planned for.

#include "ir/graph/Graph.h"
#include "ir/plan/Plan.h"
#include "kernels/Work.h"
#include "passes/planning/CostModel.h"
#include "passes/planning/LinkModel.h"

namespace sluice {

/// The module's `graph.device`, which later passes read. Absent: the default rates.
void setDevice(mlir::ModuleOp module, const DeviceProfile &profile);
/// With the threads of the module.
DeviceRates deviceRates(mlir::ModuleOp module);

/// Between the ranks of a plan.
LinkTopology linksOf(const DeviceRates &rates);
/// Of "all_reduce", "reduce_scatter" or "all_gather".
CollectiveKind collectiveKindOf(llvm::StringRef name);

/// Adds a stage: `flops` and `bytes` are those of the launch that no other stage has.
/// Shared with what measures plans, so it takes what the plan file holds.
class LaunchWork {
public:
  explicit LaunchWork(const DeviceRates &rates) : rates(rates) {}
  void addStage(const KernelWork &work);
  /// All stages have been added; `flops` and `bytes` of the whole launch.
  LaunchCost cost(double flops, double bytes, int64_t units, int64_t chunk);

private:
  const DeviceRates &rates;
  LaunchCost sum;
  double productFlops = 0, ownBytes = -1;
  int64_t stages = 0;
  bool indexes = false, moves = false;
};

LaunchCost launchCost(plan::LaunchOp launch, const DeviceRates &rates);

/// Bytes of an operation's operands that it does not read.
double untouchedBytes(mlir::Operation *op);

/// Of an operation as it would be launched alone.
double operationUs(mlir::Operation *op, const DeviceRates &rates);

} // namespace sluice
