#include "frontend/DeviceReader.h"

#include <gtest/gtest.h>

using namespace sluice;

namespace {

std::string firstError(const std::string &text) {
  DeviceResult result = parseDevice(text, "d.yaml");
  EXPECT_EQ(result.profile.has_value(), result.errors.empty());
  return result.errors.empty() ? "" : result.errors.front();
}

TEST(Devices, EachShippedProfileReads) {
  std::vector<std::string> names = shippedDevices();
  EXPECT_EQ(names.size(), 8u);
  for (const std::string &name : names) {
    DeviceResult result = readDevice(name);
    ASSERT_TRUE(result.profile) << name << ": " << result.errors.front();
    EXPECT_EQ(result.profile->name, name);
    EXPECT_FALSE(result.profile->context.empty()) << name;
    EXPECT_GT(result.profile->rates.product.flops, 0) << name;
    EXPECT_EQ(result.profile->target, name == "cpu" ? "cpu" : "cuda");
    EXPECT_EQ(result.profile->memoryBytes > 0, name != "cpu");
  }
}

TEST(Devices, A100HasWhatItsProfileSays) {
  DeviceProfile profile = *readDevice("a100-80").profile;
  EXPECT_EQ(profile.memoryBytes, int64_t(81920) << 20);
  EXPECT_EQ(profile.rates.processors, 108);
  EXPECT_EQ(profile.rates.tileRows, 128);
  EXPECT_EQ(profile.rates.product.left, 0); // costs nothing there
  EXPECT_NEAR(profile.rates.memory.back().bytesPerSecond, 2039e9 * 0.85, 1e9);
  EXPECT_EQ(profile.contextBytes(), int64_t(420 + 4 + 32) << 20);
  EXPECT_EQ(profile.rates.ranksPerNode, 8);
  EXPECT_LT(profile.rates.nodeBytesPerSecond, profile.rates.rankBytesPerSecond);
}

TEST(Devices, WrittenProfilesReadTheSame) {
  DeviceProfile profile = *readDevice("h200").profile;
  profile.name = "mine";
  profile.rates.syncUs = 0.25;
  DeviceResult again = parseDevice(deviceText(profile, "one\ntwo"), "d.yaml");
  ASSERT_TRUE(again.profile) << again.errors.front();
  EXPECT_EQ(again.profile->name, "mine");
  EXPECT_EQ(again.profile->arch, "sm_90");
  EXPECT_EQ(again.profile->memoryBytes, profile.memoryBytes);
  EXPECT_EQ(again.profile->contextBytes(), profile.contextBytes());
  EXPECT_EQ(again.profile->rates.syncUs, 0.25);
  EXPECT_EQ(again.profile->rates.bf16Flops, profile.rates.bf16Flops);
  EXPECT_EQ(again.profile->rates.ranksPerNode, 8);
  EXPECT_EQ(again.profile->rates.nodeBytesPerSecond, profile.rates.nodeBytesPerSecond);
  ASSERT_EQ(again.profile->rates.memory.size(), profile.rates.memory.size());
  EXPECT_EQ(again.profile->rates.memory[0].bytes, profile.rates.memory[0].bytes);
}

TEST(Devices, WhatIsWrongIsNamed) {
  EXPECT_EQ(firstError("nam: x\n")
                .find("d.yaml:1:1: unknown key 'nam', expected one of "
                      "name, target"),
            0u);
  EXPECT_EQ(firstError("target: tpu\n"),
            "d.yaml:1:9: 'target' is 'tpu', expected cpu or cuda");
  EXPECT_EQ(firstError("product: {flops: fast}\n"),
            "d.yaml:1:18: 'flops' is no number from 0 to 1e18");
  EXPECT_EQ(firstError("product: {flops: -1}\n"),
            "d.yaml:1:18: 'flops' is no number from 0 to 1e18");
  EXPECT_EQ(firstError("memory: lots\n"),
            "d.yaml:1:9: 'memory' is no size, expected bytes or such as 40GiB");
  EXPECT_EQ(
      firstError("bandwidth:\n  - {bytes: 2MiB, rate: 1e9}\n  - {bytes: 1MiB, rate: "
                 "1e9}\n"),
      "d.yaml:3:5: 'bandwidth' needs rising sizes and rates above 0");
  EXPECT_NE(firstError("[1, 2]"), "");
  EXPECT_EQ(firstError("ranks: {rate: 0}\n"), "d.yaml:1:8: 'ranks' needs a rate above 0");
  EXPECT_EQ(firstError("nodes: {ranks: 2.5}\n"),
            "d.yaml:1:8: 'nodes' has no whole number of 'ranks' up to 1e6");
  EXPECT_EQ(
      readDevice("a100").errors.front().find("unknown device 'a100', expected one of "
                                             "cpu, a100-40"),
      0u);
  EXPECT_NE(readDevice("./no-such.yaml").errors.front().find("check the path"),
            std::string::npos);
}

} // namespace
