#include "passes/planning/CostModel.h"

#include <gtest/gtest.h>

using namespace sluice;

namespace {

DeviceRates rates() {
  DeviceRates r;
  r.f32Flops = 100e9;
  r.bf16Flops = 1000e9;
  r.memoryBytesPerSecond = 10e9;
  r.cacheBytesPerSecond = 100e9;
  r.cacheBytes = 1000;
  r.launchOverheadUs = 2;
  return r;
}

TEST(CostModel, LargeProductIsBoundByItsRate) {
  LaunchTime time = predictLaunch({1e9, 1e6, ComputeType::F32, 1}, rates());
  EXPECT_EQ(time.boundBy, BoundBy::Compute);
  EXPECT_NEAR(time.us, 1e9 / 100e9 * 1e6 + 2, 1e-6);
}

TEST(CostModel, FasterTypeMovesTheBoundToMemory) {
  LaunchTime time = predictLaunch({1e9, 5e7, ComputeType::Bf16, 1}, rates());
  EXPECT_EQ(time.boundBy, BoundBy::Memory);
  EXPECT_NEAR(time.us, (1000 / 100e9 + (5e7 - 1000) / 10e9) * 1e6 + 2, 1e-6);
}

TEST(CostModel, SmallLaunchIsBoundByOverhead) {
  LaunchTime time = predictLaunch({10, 10, ComputeType::F32, 3}, rates());
  EXPECT_EQ(time.boundBy, BoundBy::Overhead);
  EXPECT_GE(time.us, 6);
}

TEST(CostModel, MoreBytesAreNeverFaster) {
  double last = 0;
  for (double bytes = 0; bytes < 5000; bytes += 10) {
    double us = predictLaunch({0, bytes, ComputeType::F32, 1}, rates()).us;
    EXPECT_GE(us, last);
    last = us;
  }
}

} // namespace
