// PredictTimes: writes the roofline time of each launch and program, from
// planning/CostModel.

#include "passes/Passes.h"
#include "passes/PlanLaunches.h"
#include "passes/planning/CostModel.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_PREDICTTIMES
#include "passes/Passes.h.inc"
namespace {

struct PredictTimes : impl::PredictTimesBase<PredictTimes> {
  void runOnOperation() override {
    DeviceRates rates;
    for (auto program : getOperation().getOps<plan::ProgramOp>()) {
      double total = 0;
      for (plan::LaunchOp launch : launchesOf(program)) {
        LaunchCost cost;
        cost.flops = launch.getFlops().convertToDouble();
        cost.bytes = launch.getBytes().convertToDouble();
        double us = predictLaunch(cost, rates).us;
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
