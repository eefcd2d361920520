#include "runtime/Schedule.h"

#include <cmath>
#include <gtest/gtest.h>
#include <memory>

namespace sluice::test {

class Schedule : public testing::Test {
protected:
  fbs::ParamGroupT group;

  double rate(int64_t updates) {
    flatbuffers::FlatBufferBuilder builder;
    group.name = "main";
    builder.Finish(fbs::ParamGroup::Pack(builder, &group));
    return learningRate(
        *flatbuffers::GetRoot<fbs::ParamGroup>(builder.GetBufferPointer()), updates);
  }
};

TEST_F(Schedule, ConstantWithWarmUp) {
  group.lr = 0.5;
  EXPECT_EQ(rate(0), 0.5);
  group.warmup_steps = 4;
  EXPECT_EQ(rate(0), 0.0);
  EXPECT_EQ(rate(1), 0.125);
  EXPECT_EQ(rate(4), 0.5);
  EXPECT_EQ(rate(1000000), 0.5);
}

TEST_F(Schedule, LinearReachesZero) {
  group.lr = 1;
  group.schedule = fbs::ScheduleKind::linear;
  group.total_steps = 10;
  for (int t = 0; t <= 10; ++t)
    EXPECT_NEAR(rate(t), 1.0 - t / 10.0, 1e-15);
  EXPECT_EQ(rate(11), 0.0);
}

TEST_F(Schedule, LinearWithWarmUp) {
  group.lr = 2;
  group.schedule = fbs::ScheduleKind::linear;
  group.total_steps = 10;
  group.warmup_steps = 2;
  // transformers 4.26, get_linear_schedule_with_warmup(2, 10) times 2
  EXPECT_NEAR(rate(1), 1.0, 1e-15);
  EXPECT_NEAR(rate(2), 2.0, 1e-15);
  EXPECT_NEAR(rate(6), 1.0, 1e-15);
}

TEST_F(Schedule, CosineIsHalfAWave) {
  group.lr = 1e-3;
  group.schedule = fbs::ScheduleKind::cosine;
  group.total_steps = 110;
  group.warmup_steps = 10;
  EXPECT_NEAR(rate(5), 5e-4, 1e-18);
  EXPECT_NEAR(rate(10), 1e-3, 1e-18);
  EXPECT_NEAR(rate(35), 1e-3 * 0.5 * (1 + std::cos(M_PI / 4)), 1e-18);
  EXPECT_NEAR(rate(60), 5e-4, 1e-18);
  EXPECT_EQ(rate(110), 0.0);
  EXPECT_EQ(rate(200), 0.0);
}

TEST_F(Schedule, ScalesStretchRateAndWarmUp) {
  group.lr = 1;
  group.lr_scale = 1.5;
  group.warmup_steps = 10;
  group.warmup_scale = 1.3;
  EXPECT_NEAR(rate(13), 1.5, 1e-15);
  EXPECT_NEAR(rate(12), 1.5 * 12 / 13, 1e-15);
}

TEST(BiasCorrection, CountsTheUpdateUnderWay) {
  EXPECT_NEAR(biasCorrection(0.9, 0), 0.1, 1e-16);
  EXPECT_NEAR(biasCorrection(0.9, 1), 0.19, 1e-16);
  EXPECT_EQ(biasCorrection(0.0, 5), 1.0);
}

} // namespace sluice::test
