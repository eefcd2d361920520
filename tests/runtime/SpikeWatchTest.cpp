// The rule for losses that fluctuate, against windows whose fluctuation is known.

#include "runtime/SpikeWatch.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace sluice::test {
namespace {

struct Rule {
  Rule(double fluctuation, int64_t window, int64_t times, int64_t cooldown) {
    builder.Finish(
        fbs::CreateSpikeRule(builder, fluctuation, window, 0.5, times, cooldown));
  }
  SpikeWatch watch() {
    return {flatbuffers::GetRoot<fbs::SpikeRule>(builder.GetBufferPointer()),
            state.data()};
  }
  flatbuffers::FlatBufferBuilder builder;
  std::array<double, SpikeWatch::stateSize> state = {};
};

/// Losses of a window around 2 whose deviation / mean is `share`.
void window(SpikeWatch watch, double share, std::vector<double> *cuts) {
  for (int i = 0; i < 4; ++i)
    if (auto cut = watch.add(2 + (i % 2 == 0 ? 2 : -2) * share))
      cuts->push_back(*cut);
}

TEST(SpikeWatch, CutsAfterTwoWindowsAboveTheBound) {
  Rule rule(0.15, 4, 3, 0);
  std::vector<double> cuts;
  for (double share : {0.16, 0.14, 0.2})
    window(rule.watch(), share, &cuts);
  EXPECT_TRUE(cuts.empty());
  EXPECT_EQ(rule.watch().factor(), 1);
  window(rule.watch(), 0.3, &cuts);
  ASSERT_EQ(cuts.size(), 1u);
  EXPECT_NEAR(cuts[0], 0.3, 1e-12);
  EXPECT_EQ(rule.watch().factor(), 0.5);
}

TEST(SpikeWatch, WaitsAndEndsAfterAFewCuts) {
  Rule rule(0.15, 4, 2, 6);
  std::vector<double> cuts;
  std::vector<int64_t> at;
  for (int update = 1; update <= 80; ++update)
    if (rule.watch().add(update % 2 ? 1 : 3))
      at.push_back(update);
  EXPECT_EQ(at, (std::vector<int64_t>{8, 22}));
  EXPECT_EQ(rule.watch().factor(), 0.25);
}

TEST(SpikeWatch, LeavesOutLossesThatAreNotFinite) {
  Rule rule(0.15, 4, 3, 0);
  SpikeWatch watch = rule.watch();
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(watch.add(std::numeric_limits<double>::quiet_NaN()));
    EXPECT_FALSE(watch.add(std::numeric_limits<double>::infinity()));
    EXPECT_FALSE(watch.add(1));
  }
}

// All there is lies in the state: copied, it decides alike.
TEST(SpikeWatch, GoesOnFromItsState) {
  Rule whole(0.05, 4, 3, 3);
  auto lossAt = [](int i) { return 1 + 0.3 * std::sin(i * 2.1); };
  for (int i = 0; i < 11; ++i)
    whole.watch().add(lossAt(i));
  Rule resumed(0.05, 4, 3, 3);
  resumed.state = whole.state;
  for (int i = 11; i < 60; ++i) {
    EXPECT_EQ(whole.watch().add(lossAt(i)), resumed.watch().add(lossAt(i)));
    EXPECT_EQ(whole.state, resumed.state);
  }
  EXPECT_EQ(whole.watch().times(), 3);
}

TEST(SpikeWatch, TakesNoFactorFromADamagedState) {
  Rule rule(0.15, 4, 3, 0);
  for (double times : {1e300, -5.0, std::numeric_limits<double>::quiet_NaN()}) {
    rule.state[5] = times;
    EXPECT_GE(rule.watch().factor(), 0.125);
    EXPECT_LE(rule.watch().factor(), 1);
  }
}

TEST(SpikeWatch, WithoutARuleDoesNothing) {
  SpikeWatch none;
  EXPECT_FALSE(none.add(1));
  EXPECT_EQ(none.factor(), 1);
}

} // namespace
} // namespace sluice::test
