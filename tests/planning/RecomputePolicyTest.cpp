#include "RecomputeSteps.h"

#include "passes/planning/RecomputeCertificate.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace sluice;
using namespace sluice::testing;

namespace {

RecomputeSolution planOf(const RecomputeProblem &problem, const RecomputePolicy &policy) {
  RecomputeSolution plan = planByPolicy(problem, policy);
  EXPECT_EQ(checkSchedule(problem, plan), "");
  return plan;
}

int64_t clonesOf(const RecomputeSolution &plan) {
  return std::count_if(plan.schedule.begin(), plan.schedule.end(),
                       [](const Execution &run) { return run.again; });
}

/// x -> a -> b -> c -> d (loss); backward reads a, b, c.
RecomputeProblem chain() {
  RecomputeProblem problem;
  problem.values.push_back({0, true, false, false});
  for (int32_t o = 0; o < 4; ++o) {
    problem.values.push_back({o < 3 ? 1024 : 64, false, o == 3, false});
    problem.ops.push_back({10, {o}, {o + 1}, 0, false, true, -1});
  }
  int32_t gradient = 4;
  for (int32_t o = 3; o > 0; --o) {
    problem.values.push_back({64, false, false, false});
    int32_t result = int32_t(problem.values.size()) - 1;
    problem.ops.push_back({20, {o, gradient}, {result}, 0, true, false, -1});
    gradient = result;
  }
  return problem;
}

TEST(RecomputePolicy, NoneRunsEverythingOnce) {
  RecomputeProblem problem = resnet50Step(4);
  RecomputeSolution plan = planOf(problem, {});
  EXPECT_EQ(clonesOf(plan), 0);
  EXPECT_NEAR(plan.timeUs, plan.onceUs, 1e-6);
}

TEST(RecomputePolicy, EveryKeepsBordersOfLayers) {
  RecomputeProblem problem = decoderStep({});
  RecomputeSolution none = planOf(problem, {});
  RecomputeSolution each = planOf(problem, {RecomputeKind::Every, 1, {}});
  RecomputeSolution third = planOf(problem, {RecomputeKind::Every, 3, {}});
  EXPECT_LT(each.peakBytes, none.peakBytes);
  EXPECT_GT(clonesOf(each), 12 * 10);
  EXPECT_LT(third.peakBytes, none.peakBytes);
  // At most one forward part more, as Chen et al. say.
  double forward = 0;
  for (const auto &op : problem.ops)
    forward += op.backward ? 0 : op.costUs;
  EXPECT_LE(third.timeUs, third.onceUs + forward);
}

TEST(RecomputePolicy, SqrtIsEveryRootOfTheBlocks) {
  RecomputeProblem problem = decoderStep({16, 768, 12, 8, 1024});
  // 16 layers; the embedding counts to the first, the head to the last.
  EXPECT_EQ(planOf(problem, {RecomputeKind::Sqrt, 0, {}}).peakBytes,
            planOf(problem, {RecomputeKind::Every, 4, {}}).peakBytes);
}

TEST(RecomputePolicy, EveryCountsPointsOfOneValueWhereNoBlocksAreNamed) {
  RecomputeSolution plan = planOf(chain(), {RecomputeKind::Every, 2, {}});
  // b crosses the border between {a, b} and {c, d}; c and d are read right behind it, so
  // that their second run is their only one.
  EXPECT_EQ(plan.kept, (std::vector<int32_t>{2, 3, 4}));
  EXPECT_EQ(clonesOf(plan), 1);
}

TEST(RecomputePolicy, RegionsRunTheirInteriorAgain) {
  RecomputeSolution plan = planOf(chain(), {RecomputeKind::Regions, 0, {{0, 1}}});
  // a is the interior, b the result of the region.
  EXPECT_EQ(plan.kept, (std::vector<int32_t>{2, 3, 4}));
  EXPECT_EQ(clonesOf(plan), 1);
  EXPECT_EQ(plan.timeUs, plan.onceUs + 10);
}

TEST(RecomputePolicy, RefusesBadRegions) {
  RecomputeProblem problem = chain();
  auto errorOf = [&](std::vector<std::vector<int32_t>> regions) {
    return planByPolicy(problem, {RecomputeKind::Regions, 0, std::move(regions)}).error;
  };
  EXPECT_EQ(errorOf({{0, 2}}), "region 0 is not convex: a path leaves it and comes back "
                               "at operation 2; add the operations between");
  EXPECT_EQ(errorOf({{5}}),
            "region 0 has operation 5, which is not one of the forward part");
  EXPECT_EQ(errorOf({{0}, {0, 1}}), "operation 0 lies in two regions");
  EXPECT_EQ(planByPolicy(problem, {RecomputeKind::Every, 0, {}}).error,
            "'every' is 0, expected at least 1");
}

TEST(RecomputePolicy, SaysWhatFillsThePeak) {
  RecomputeProblem problem = chain();
  RecomputeSolution plan = planOf(problem, {});
  // The first backward operation: a, b, c, loss and the new gradient.
  EXPECT_EQ(liveAtPeak(problem, plan), (std::vector<int32_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(plan.peakBytes, 3 * 1024 + 2 * 64);
}

} // namespace
