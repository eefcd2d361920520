#pragma once
// Measures this machine into a device profile: compiles and runs training steps of small
// networks, takes the time of each launch, and finds the rates that explain them best.

#include "ir/DeviceProfile.h"
#include "passes/planning/CostModel.h"
#include "runtime/Status.h"

#include <functional>
#include <string>
#include <vector>

namespace sluice::cli {

/// One launch as measured: its work, as a plan file states it, and its time.
struct MeasuredLaunch {
  LaunchCost cost;
  bool isOnlyProduct = false, isOnlyGenerated = false;
  double us = 0; ///< the lower quartile over the steps
};

struct CalibrationOptions {
  int threads = 1;      ///< the most
  double seconds = 0.5; ///< of running, for each network and number of threads
  std::function<void(const std::string &)> progress;
};

/// How well the rates found explain what was measured.
struct CalibrationError {
  std::string network;
  int threads = 1;
  double measuredUs = 0, predictedUs = 0;
};

Status calibrate(const CalibrationOptions &options, DeviceProfile &profile,
                 std::vector<CalibrationError> &errors);

/// Rates that explain launches measured with one worker; those in `rates` where nothing
/// was measured.
void fitRates(const std::vector<MeasuredLaunch> &launches, DeviceRates &rates);

/// x >= 0 with the least sum of squared differences of rows * x to `targets`.
std::vector<double> nonNegativeLeastSquares(const std::vector<std::vector<double>> &rows,
                                            const std::vector<double> &targets);

} // namespace sluice::cli
