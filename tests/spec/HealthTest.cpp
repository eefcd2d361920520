// Bounds on gradients and reactions to spikes, as the spec writes them.

#include "frontend/SpecReader.h"

#include <gtest/gtest.h>

using namespace sluice;

namespace {

TrainingSpec good(const std::string &yaml) {
  SpecResult result = readSpecText(yaml, "s.yaml");
  for (const std::string &error : result.errors)
    ADD_FAILURE() << error;
  return result.spec.value_or(TrainingSpec());
}

std::string errorsOf(const std::string &yaml) {
  SpecResult result = readSpecText(yaml, "s.yaml");
  EXPECT_FALSE(result.spec) << yaml;
  std::string all;
  for (const std::string &error : result.errors)
    all += error + "\n";
  return all;
}

#define EXPECT_REFUSED(yaml, part)                                                       \
  EXPECT_NE(errorsOf(yaml).find(part), std::string::npos) << errorsOf(yaml)

TEST(ClipSpec, HasDefaultsByKind) {
  ClipSpec zclip = good("clip: {kind: zclip}").clip;
  EXPECT_EQ(zclip.z, 2.5);
  EXPECT_EQ(zclip.alpha, 0.97);
  EXPECT_EQ(zclip.warmup, 25);
  EXPECT_EQ(zclip.max, 0);
  ClipSpec units = good("clip: {kind: agc, exclude: ['head*']}").clip;
  EXPECT_EQ(units.ratio, 0.01);
  EXPECT_EQ(units.eps, 1e-3);
  EXPECT_EQ(units.exclude, std::vector<std::string>{"head*"});
  EXPECT_TRUE(good("clip: {kind: group_norm, max: 1}").clip.isShared);
  EXPECT_FALSE(good("clip: {kind: group_norm, max: 1, share: none}").clip.isShared);
}

TEST(ClipSpec, RefusesWhatHasNoEffectOrNoBound) {
  EXPECT_REFUSED("clip: {kind: group_norm}",
                 "'clip: {kind: group_norm}' needs 'max' above 0");
  EXPECT_REFUSED("clip: {kind: agc, max: 1}", "'clip.max' has no effect on agc");
  EXPECT_REFUSED("clip: {kind: global_norm, max: 1, z: 3}",
                 "'clip.z' has no effect on global_norm");
  EXPECT_REFUSED("clip: {kind: zclip, alpha: 1}", "'alpha'");
  EXPECT_REFUSED("clip: {kind: norm, max: 1}", "clip.kind");
  EXPECT_REFUSED("clip: {max: 1}", "'clip' is a map without 'kind'");
  EXPECT_REFUSED("clip: {kind: none, max: 1}", "'clip.max' has no effect on none");
  EXPECT_REFUSED("clip: {kind: agc}\nparallel: {data: 2, zero: 1}",
                 "'clip: {kind: agc}' needs the gradients of whole units");
}

TEST(SpikeSpec, ReadsRulesAndActions) {
  EXPECT_FALSE(good("").spikes.cutsRates);
  SpikeSpec spikes = good("spikes: {window: 10}").spikes;
  EXPECT_TRUE(spikes.cutsRates);
  EXPECT_EQ(spikes.fluctuation, 0.15);
  EXPECT_EQ(spikes.cooldown, 40);
  EXPECT_FALSE(spikes.judgesNorms());
  spikes = good("spikes: {fluctuation: 0, outliers: skip}").spikes;
  EXPECT_FALSE(spikes.cutsRates);
  EXPECT_EQ(spikes.outliers, "skip");
  spikes = good("spikes: {outliers: {action: rerun, factor: 4, warmup: 7}}").spikes;
  EXPECT_EQ(spikes.outliers, "rerun");
  EXPECT_EQ(spikes.factor, 4);
  EXPECT_EQ(spikes.warmup, 7);
}

TEST(SpikeSpec, RefusesWhatIsNoRule) {
  EXPECT_REFUSED("spikes: {outliers: {factor: 4}}",
                 "'spikes.outliers' is a map without 'action'");
  EXPECT_REFUSED("spikes: {outliers: drop}", "spikes.outliers");
  EXPECT_REFUSED("spikes: {windows: 4}", "window");
  EXPECT_REFUSED("spikes: {scale: 2}", "'scale'");
}

// What other modes of updates ask before they update a group early.
TEST(AllGradients, AreNeededByWhatJudgesThemTogether) {
  EXPECT_EQ(good("").needsAllGradients(), "");
  EXPECT_EQ(good("clip: {kind: group_norm, max: 1}").needsAllGradients(), "");
  EXPECT_EQ(good("clip: {kind: agc}").needsAllGradients(), "");
  EXPECT_EQ(good("clip: {kind: zclip}").needsAllGradients(), "clip: {kind: zclip}");
  EXPECT_EQ(good("spikes: {outliers: skip}").needsAllGradients(),
            "spikes: {outliers: skip}");
}

} // namespace
