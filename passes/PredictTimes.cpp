// PredictTimes: writes the time of each launch and program on the module's device, from
// planning/CostModel.

#include "passes/Collectives.h"
#include "passes/LaunchCosts.h"
#include "passes/Passes.h"
#include "passes/PlanLaunches.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_PREDICTTIMES
#include "passes/Passes.h.inc"
namespace {

struct PredictTimes : impl::PredictTimesBase<PredictTimes> {
  void runOnOperation() override {
    DeviceRates rates = deviceRates(getOperation());
    for (auto program : getOperation().getOps<plan::ProgramOp>()) {
      double total = 0;
      for (plan::LaunchOp launch : launchesOf(program)) {
        // What collectives take depends on what runs beside them.
        double us =
            isCollective(launch) ? 0 : predictLaunch(launchCost(launch, rates), rates).us;
        launch.setPredictedUs(APFloat(us));
        total += us;
      }
      program.setPredictedUs(APFloat(total));
    }
  }
};

} // namespace

std::unique_ptr<Pass> createPredictTimes() { return std::make_unique<PredictTimes>(); }
} // namespace sluice
