// `continual.replay`: defaults, and what is refused.

#include "frontend/SpecReader.h"

#include <gtest/gtest.h>

using namespace sluice;

namespace {

const std::string loss = "loss: {kind: cross_entropy}\n";

std::string errorsOf(const std::string &yaml) {
  SpecResult result = readSpecText(loss + yaml, "s.yaml");
  EXPECT_FALSE(result.spec) << yaml;
  std::string all;
  for (const std::string &error : result.errors)
    all += error + "\n";
  return all;
}

#define EXPECT_REFUSED(yaml, part)                                                       \
  EXPECT_NE(errorsOf(yaml).find(part), std::string::npos) << errorsOf(yaml)

TEST(ReplaySpec, HasDefaults) {
  SpecResult result = readSpecText(loss + "continual: {replay: {derpp: {beta: 1}}}", "s");
  ASSERT_TRUE(result.spec);
  const ReplaySpec &replay = result.spec->replay;
  EXPECT_TRUE(replay.isOn && replay.isWeighted() && replay.hasLogits());
  EXPECT_EQ(replay.ratio, 0.2);
  EXPECT_EQ(replay.capacityBytes, 64 << 20);
  EXPECT_EQ(replay.policy, "reservoir");
  EXPECT_EQ(replay.minPerClass, 50);
  EXPECT_EQ(replay.logitsWeight, 0.3);
  EXPECT_EQ(replay.labelsWeight, 1);
  result = readSpecText(loss, "s");
  EXPECT_FALSE(result.spec->replay.isOn);
}

TEST(ReplaySpec, TheDesignNotesSpellingIsRead) {
  SpecResult result =
      readSpecText(loss + "training_params: {regularization: {replay_ratio: 0.25}}", "s");
  ASSERT_TRUE(result.spec);
  EXPECT_TRUE(result.spec->replay.isOn);
  EXPECT_EQ(result.spec->replay.ratio, 0.25);
}

TEST(ReplaySpec, WhatCannotBeHadIsNamed) {
  EXPECT_REFUSED("continual: {replay: {ratio: 0}}", "more than 0 and less than 1");
  EXPECT_REFUSED("continual: {replay: {ratio: 1}}", "more than 0 and less than 1");
  EXPECT_REFUSED("continual: {replay: {capacity: plenty}}", "a size such as 64MiB");
  EXPECT_REFUSED("continual: {replay: {policy: fifo}}", "'continual.replay.policy'");
  EXPECT_REFUSED("continual: {replay: {alpha: 1}}",
                 "a meaning for the policy 'prioritized' alone, which is 'reservoir'");
  EXPECT_REFUSED("continual: {replay: {size: 3}}", "unknown key");
  EXPECT_REFUSED("continual: {ewc: {lambda: 1, online: {gamma: 1}, refresh: 0.1}, "
                 "replay: {}}",
                 "not yet supported with 'continual.ewc.refresh'");
  EXPECT_REFUSED("parallel: {data: 2}\ncontinual: {replay: {ratio: 0.5}}",
                 "not yet supported with 'parallel.data'");
}

TEST(ReplaySpec, WeightsNeedALossOfSamples) {
  SpecResult result = readSpecText(
      "loss: {kind: output, name: l}\ncontinual: {replay: {derpp: {}}}", "s");
  ASSERT_FALSE(result.spec);
  EXPECT_NE(
      result.errors[0].find("weighs the loss of single samples, which 'output' has"),
      std::string::npos);
  result = readSpecText("loss: {kind: output, name: l}\ncontinual: {replay: {}}", "s");
  EXPECT_TRUE(result.spec) << result.errors[0];
  result = readSpecText("loss: {kind: cross_entropy, label_smoothing: 0.1}\n"
                        "continual: {replay: {policy: prioritized}}",
                        "s");
  ASSERT_FALSE(result.spec);
  EXPECT_NE(result.errors[0].find("not yet supported with 'loss.label_smoothing'"),
            std::string::npos);
}

} // namespace
