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

TEST_F(Schedule, EndsAtItsLeastRatio) {
  group.lr = 1;
  group.schedule = fbs::ScheduleKind::cosine;
  group.total_steps = 10;
  group.min_ratio = 0.1;
  // PyTorch 1.13.1, CosineAnnealingLR(T_max=10, eta_min=0.1)
  const double expected[] = {
      1,    0.977975432333, 0.914057647469, 0.814503363532, 0.689057647469,
      0.55, 0.410942352531, 0.285496636468, 0.185942352531, 0.122024567667,
      0.1};
  for (int t = 0; t <= 10; ++t)
    EXPECT_NEAR(rate(t), expected[t], 1e-12);
  group.schedule = fbs::ScheduleKind::linear;
  EXPECT_NEAR(rate(5), 0.55, 1e-15);
  EXPECT_NEAR(rate(99), 0.1, 1e-15);
}

TEST_F(Schedule, WarmsUpStaysAndDecays) {
  group.lr = 2;
  group.schedule = fbs::ScheduleKind::wsd;
  group.total_steps = 20;
  group.warmup_steps = 4;
  group.decay_steps = 8;
  group.min_ratio = 0.25;
  EXPECT_EQ(rate(2), 1.0);
  for (int t = 4; t <= 12; ++t)
    EXPECT_EQ(rate(t), 2.0);
  EXPECT_NEAR(rate(14), 2 * (0.25 + 0.75 * 0.75), 1e-15);
  EXPECT_NEAR(rate(20), 0.5, 1e-15);
  EXPECT_NEAR(rate(100), 0.5, 1e-15);
  group.decay = fbs::DecayKind::one_minus_sqrt;
  EXPECT_NEAR(rate(14), 2 * (0.25 + 0.75 * 0.5), 1e-15);
  group.decay = fbs::DecayKind::cosine;
  EXPECT_NEAR(rate(16), 2 * (0.25 + 0.75 * 0.5), 1e-15);
}

TEST_F(Schedule, OneCycleIsPyTorchs) {
  group.lr = 0.5;
  group.schedule = fbs::ScheduleKind::one_cycle;
  group.total_steps = 20;
  group.pct_start = 0.3;
  group.div_factor = 10;
  group.final_div_factor = 100;
  // PyTorch 1.13.1, OneCycleLR(max_lr=0.5, total_steps=20, pct_start=0.3, div_factor=10,
  // final_div_factor=100)
  const double expected[] = {0.05,
                             0.0929711762656,
                             0.205471176266,
                             0.344528823734,
                             0.457028823734,
                             0.5,
                             0.493738246067,
                             0.475266974759,
                             0.445512412746,
                             0.405966578014,
                             0.358612463845,
                             0.305824603256,
                             0.25025,
                             0.194675396744,
                             0.141887536155,
                             0.0945334219858,
                             0.0549875872536,
                             0.0252330252414,
                             0.00676175393259,
                             0.0005};
  for (int t = 0; t < 20; ++t)
    EXPECT_NEAR(rate(t), expected[t], 1e-12) << t;
  EXPECT_NEAR(rate(30), 0.0005, 1e-15);
}

TEST_F(Schedule, StepsBySizeOrAtMilestones) {
  group.lr = 1;
  group.schedule = fbs::ScheduleKind::step;
  group.gamma = 0.5;
  group.step_size = 3;
  for (int t = 0; t < 12; ++t) // StepLR(3, gamma=0.5)
    EXPECT_EQ(rate(t), std::pow(0.5, t / 3));
  group.step_size = 0;
  group.gamma = 0.1;
  group.points = {2, 5, 9}; // MultiStepLR([2, 5, 9], gamma=0.1)
  const double expected[] = {1, 1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.01, 0.001};
  for (int t = 0; t < 10; ++t)
    EXPECT_NEAR(rate(t), expected[t], 1e-15);
}

TEST_F(Schedule, FollowsATable) {
  group.lr = 2;
  group.schedule = fbs::ScheduleKind::table;
  group.points = {10, 20, 21};
  group.factors = {0.5, 1, 0.1};
  EXPECT_EQ(rate(0), 1.0);
  EXPECT_EQ(rate(10), 1.0);
  EXPECT_NEAR(rate(15), 1.5, 1e-15);
  EXPECT_EQ(rate(20), 2.0);
  EXPECT_NEAR(rate(21), 0.2, 1e-15);
  EXPECT_NEAR(rate(1000), 0.2, 1e-15);
}

TEST(Nadam, WeighsByPyTorchsProducts) {
  // t = 1: mu = 0.9 (1 - 0.96^0.004 / 2), P = mu
  double mu1 = 0.9 * (1 - 0.5 * std::pow(0.96, 0.004));
  double mu2 = 0.9 * (1 - 0.5 * std::pow(0.96, 0.008));
  auto weights = [](int64_t done) {
    return nadamWeights(0.9, 0.004, done, nadamProduct(0.9, 0.004, done));
  };
  EXPECT_NEAR(weights(0).gradient, 1, 1e-15);
  EXPECT_NEAR(weights(0).moment, mu2 / (1 - mu1 * mu2), 1e-15);
  EXPECT_NEAR(weights(1).gradient, (1 - mu2) / (1 - mu1 * mu2), 1e-15);
  NadamWeights late = weights(1000000000);
  EXPECT_NEAR(late.gradient, 0.1, 1e-12);
  EXPECT_NEAR(late.moment, 0.9, 1e-12);
}

TEST(Radam, IsRectifiedFromTheSixthUpdate) {
  EXPECT_EQ(radamRectification(0.999, 4), 0.0);
  EXPECT_GT(radamRectification(0.999, 5), 0.0);
  EXPECT_NEAR(radamRectification(0.999, 10000000), 1, 1e-12);
}

TEST(BiasCorrection, CountsTheUpdateUnderWay) {
  EXPECT_NEAR(biasCorrection(0.9, 0), 0.1, 1e-16);
  EXPECT_NEAR(biasCorrection(0.9, 1), 0.19, 1e-16);
  EXPECT_EQ(biasCorrection(0.0, 5), 1.0);
}

} // namespace sluice::test
