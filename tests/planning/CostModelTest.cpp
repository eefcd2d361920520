#include "passes/planning/CostModel.h"

#include <gtest/gtest.h>

using namespace sluice;

namespace {

DeviceRates rates() {
  DeviceRates r;
  r.product = {100e9, 10e9, 0, 10e9};
  r.bf16Flops = 1000e9;
  r.vectorFlops = 50e9;
  r.memory = {{1000, 100e9}, {10000, 10e9}};
  r.launchUs = 2;
  r.syncUs = 3;
  r.scaling = {{1, 1, 1, 1}, {4, 4, 4, 2}};
  return r;
}

LaunchCost product(double flops, double bytes) {
  LaunchCost cost;
  cost.product.flops = flops;
  cost.bytes = bytes;
  return cost;
}

TEST(CostModel, LargeProductIsBoundByItsRate) {
  LaunchTime time = predictLaunch(product(1e9, 1e6), rates());
  EXPECT_EQ(time.boundBy, BoundBy::Matrix);
  EXPECT_NEAR(time.us, 1e9 / 100e9 * 1e6 + 2, 1e-6);
}

TEST(CostModel, PackingAndStoringAddToAProduct) {
  LaunchCost cost = product(1e9, 1e6);
  cost.product.left = 1e7, cost.product.right = 1e12, cost.product.store = 2e7;
  EXPECT_NEAR(predictLaunch(cost, rates()).us, 10000 + 1000 + 2000 + 2, 1e-6);
}

TEST(CostModel, FasterTypeMovesTheBoundToMemory) {
  LaunchCost cost = product(1e9, 5e7);
  cost.type = ComputeType::Bf16;
  LaunchTime time = predictLaunch(cost, rates());
  EXPECT_EQ(time.boundBy, BoundBy::Memory);
  EXPECT_NEAR(time.us, (10000 / 10e9 + (5e7 - 10000) / 10e9) * 1e6 + 2, 1e-6);
}

TEST(CostModel, ConvolutionsOfBf16MayHaveARateOfTheirOwn) {
  DeviceRates r = rates();
  r.conv = {100e9, 0, 0, 0};
  LaunchCost cost = product(1e9, 0);
  cost.type = ComputeType::Bf16;
  cost.product.kind = ProductKind::Conv;
  EXPECT_NEAR(predictLaunch(cost, r).us, 1000 + 2, 1e-6);
  r.conv16Flops = 200e9, r.f16Flops = 500e9;
  EXPECT_NEAR(predictLaunch(cost, r).us, 5000 + 2, 1e-6);
  cost.type = ComputeType::F16;
  EXPECT_NEAR(predictLaunch(cost, r).us, 1e15 / r.f16Flops + 2, 1e-6);
  cost.type = ComputeType::Bf16;
  cost.product.kind = ProductKind::Product;
  EXPECT_NEAR(predictLaunch(cost, r).us, 1000 + 2, 1e-6);
}

TEST(CostModel, BytesTakeTheMeasuredTimeAtMeasuredSizes) {
  EXPECT_NEAR(predictLaunch(product(0, 1000), rates()).us, 0.01 + 2, 1e-9);
  EXPECT_NEAR(predictLaunch(product(0, 10000), rates()).us, 1 + 2, 1e-9);
  EXPECT_NEAR(predictLaunch(product(0, 5500), rates()).us, (0.01 + 1) / 2 + 2, 1e-9);
}

TEST(CostModel, SmallLaunchIsBoundByOverhead) {
  LaunchCost cost = product(10, 10);
  cost.launches = 3;
  LaunchTime time = predictLaunch(cost, rates());
  EXPECT_EQ(time.boundBy, BoundBy::Overhead);
  EXPECT_GE(time.us, 6);
}

TEST(CostModel, MoreBytesAreNeverFaster) {
  double last = 0;
  for (double bytes = 0; bytes < 50000; bytes += 10) {
    double us = predictLaunch(product(0, bytes), rates()).us;
    EXPECT_GE(us, last);
    last = us;
  }
}

TEST(CostModel, ThreadsShareChunks) {
  DeviceRates four = rates();
  four.threads = 4;
  LaunchCost cost = product(1e9, 0);
  EXPECT_NEAR(predictLaunch(cost, four).us, 2500 + 2 + 3, 1e-6);
  cost.chunks = 1; // one worker has all of it, and nobody waits
  EXPECT_NEAR(predictLaunch(cost, four).us, 10000 + 2, 1e-6);
  cost.chunks = 5; // two rounds, the second for one worker only
  EXPECT_NEAR(predictLaunch(cost, four).us, 4000 + 2 + 3, 1e-6);
}

TEST(CostModel, LastRoundOfTilesLeavesProcessorsIdle) {
  DeviceRates many = rates();
  many.processors = 100;
  LaunchCost cost = product(1e9, 0);
  cost.product.tiles = 150;
  EXPECT_NEAR(predictLaunch(cost, many).us, 10000 * 2 / 1.5 + 2, 1e-6);
}

TEST(CostModel, CopiesPayLatencyAndBandwidth) {
  DeviceRates r = rates();
  r.linkBytesPerSecond = 1e9, r.linkLatencyUs = 5;
  EXPECT_NEAR(predictCopyUs(1e6, r), 1005, 1e-9);
}

} // namespace
