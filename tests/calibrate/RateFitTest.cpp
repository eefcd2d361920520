// Rates are found again from times that were made with them.

#include "tools/sluice/Calibration.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace sluice;
using namespace sluice::cli;

namespace {

MeasuredLaunch product(ProductKind kind, double m, double n, double k) {
  MeasuredLaunch launch;
  launch.isOnlyProduct = true;
  ProductWork &work = launch.cost.product;
  work.kind = kind;
  work.flops = 2 * m * n * k, work.right = n * k;
  work.left = m * k * std::ceil(n / (n < 500 ? 32 : 512)); // blocks of columns
  work.store = m * n * std::ceil(k / 256);
  launch.cost.bytes = 4 * (m * k + n * k + m * n);
  return launch;
}

TEST(LeastSquares, StaysAboveZero) {
  // Without the bound the second would be -1.
  std::vector<double> x = nonNegativeLeastSquares({{1, 1}, {1, 0}, {0, 1}}, {1, 2, -1});
  EXPECT_NEAR(x[0], 1.5, 1e-9);
  EXPECT_EQ(x[1], 0);
  x = nonNegativeLeastSquares({{1, 0}, {0, 1e6}}, {3, 4e6});
  EXPECT_NEAR(x[0], 3, 1e-9);
  EXPECT_NEAR(x[1], 4, 1e-9);
}

TEST(RateFit, FindsTheRatesOfProducts) {
  DeviceRates truth;
  truth.product = {200e9, 5e9, 25e9, 10e9};
  truth.launchUs = 0;
  std::vector<MeasuredLaunch> launches;
  for (double m : {32, 128, 512})
    for (double n : {64, 512, 4096})
      for (double k : {32, 256, 2048}) {
        MeasuredLaunch launch = product(ProductKind::Product, m, n, k);
        launch.us = predictLaunch(launch.cost, truth).us;
        launches.push_back(launch);
      }
  DeviceRates found;
  fitRates(launches, found);
  EXPECT_NEAR(found.product.flops / truth.product.flops, 1, 1e-3);
  EXPECT_NEAR(found.product.left / truth.product.left, 1, 1e-2);
  EXPECT_NEAR(found.product.right / truth.product.right, 1, 2e-2);
  EXPECT_NEAR(found.product.store / truth.product.store, 1, 1e-2);
  EXPECT_EQ(found.conv.flops, DeviceRates().conv.flops) << "nothing was measured";
}

TEST(RateFit, BandwidthFollowsTheSizesAndNeverMakesMoreBytesFaster) {
  std::vector<MeasuredLaunch> launches;
  for (double bytes = 1 << 15; bytes < 1 << 28; bytes *= 2) {
    MeasuredLaunch launch;
    launch.isOnlyGenerated = true;
    launch.cost.bytes = bytes;
    launch.us = bytes / (bytes < 1 << 20 ? 200e9 : 50e9) * 1e6;
    launches.push_back(launch);
  }
  DeviceRates found;
  found.launchUs = 0;
  fitRates(launches, found);
  EXPECT_NEAR(found.memory.front().bytesPerSecond, 200e9, 1);
  EXPECT_NEAR(found.memory.back().bytesPerSecond, 50e9, 1);
  double last = 0;
  for (double bytes = 1000; bytes < 1 << 29; bytes *= 1.3) {
    LaunchCost cost;
    cost.bytes = bytes;
    double us = predictLaunch(cost, found).us;
    EXPECT_GE(us, last);
    last = us;
  }
}

} // namespace
