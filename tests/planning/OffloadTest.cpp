#include "passes/planning/Offload.h"

#include "passes/planning/Frontier.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

/// A forward part of `layers` values of 1000 bytes and a backward part that reads them in
/// reverse; each layer has a moment of 500 bytes that its update reads and writes.
OffloadProblem layers(int count, double us) {
  OffloadProblem problem;
  problem.alignBytes = 1;
  OffloadProblem::Program program;
  program.stream.link = {1000 / 10e-6, 0}; // 10 us for a value
  int32_t launches = 2 * count;
  program.stream.launchUs.assign(size_t(launches), us);
  for (int32_t i = 0; i < count; ++i) {
    int32_t last = launches - 1 - i;
    program.stream.tensors.push_back(
        {1000, false, false, false, {{i, true}, {last, false}}});
    program.life.push_back({i, last});
    program.stateOf.push_back(-1);
    program.movable.push_back(1);
    program.stream.tensors.push_back({500, true, false, false, {{last, true}}});
    program.life.push_back({0, 0});
    program.stateOf.push_back(i);
    program.movable.push_back(0);
    problem.states.push_back({500, true});
  }
  problem.programs.push_back(program);
  return problem;
}

TEST(Offload, PlansFallInBytesAndStartWithEverythingKept) {
  OffloadProblem problem = layers(8, 100);
  std::vector<OffloadPlan> plans = offloadPlans(problem, keepAll(problem));
  ASSERT_GT(plans.size(), 3u);
  EXPECT_EQ(plans[0].deviceBytes, 8 * 1000 + 8 * 500);
  EXPECT_EQ(plans[0].hostBytes, 0);
  EXPECT_EQ(plans[0].timeUs, 1600);
  for (size_t i = 1; i < plans.size(); ++i) {
    EXPECT_LT(plans[i].deviceBytes, plans[i - 1].deviceBytes);
    EXPECT_GT(plans[i].hostBytes, 0);
    OffloadPlan again = measureOffload(problem, plans[i].choice);
    EXPECT_EQ(again.deviceBytes, plans[i].deviceBytes);
    EXPECT_EQ(again.timeUs, plans[i].timeUs);
  }
  // A copy takes a tenth of a launch: half of the bytes leave at no cost, but for the way
  // back of what is needed last.
  bool halved = false;
  for (const OffloadPlan &plan : plans)
    halved |= plan.deviceBytes <= 6000 && plan.timeUs <= 1610;
  EXPECT_TRUE(halved);
  EXPECT_LE(plans.back().deviceBytes, 4000);
}

TEST(Offload, SlowLinkCostsTime) {
  OffloadProblem problem = layers(8, 2);
  std::vector<OffloadPlan> plans = offloadPlans(problem, keepAll(problem));
  EXPECT_LT(plans.back().deviceBytes, plans.front().deviceBytes);
  EXPECT_GT(plans.back().timeUs, 2 * plans.front().timeUs);
}

TEST(Offload, StaysInPlaceWhereNothingMayMove) {
  OffloadProblem problem = layers(4, 100);
  problem.programs[0].movable.assign(8, 0);
  for (OffloadProblem::State &state : problem.states)
    state.movable = false;
  EXPECT_EQ(offloadPlans(problem, keepAll(problem)).size(), 1u);
}

/// x -> a chain of `n` values, all read again by the backward part.
RecomputeProblem chain(int n, double us) {
  RecomputeProblem problem;
  problem.alignBytes = 1;
  problem.values.push_back({1, true, false, false});
  for (int i = 0; i < 2 * n; ++i) {
    RecomputeProblem::Op op;
    op.costUs = us;
    op.inputs.push_back(i);
    if (i >= n)
      op.inputs.push_back(2 * n - i);
    op.outputs.push_back(i + 1);
    op.backward = i >= n;
    problem.ops.push_back(op);
    problem.values.push_back({1000, false, i + 1 == 2 * n, false});
  }
  return problem;
}

TEST(OffloadCertificate, HoldsOnlyForWhatItProves) {
  RecomputeProblem problem = chain(10, 50);
  LinkRates link{1000 / 10e-6, 0};
  Frontier frontier = Frontier::build(problem);
  ASSERT_EQ(frontier.error(), "");
  OffloadCertificate proof;
  proof.budgetBytes = 5000;
  proof.movedBytes = 2000;
  proof.compute = frontier.certificate(7000);
  proof.linkUs = leastLinkUs(2000, 0, link);
  EXPECT_EQ(proof.linkUs, 40);
  proof.boundUs = 1000; // every operation once
  EXPECT_EQ(checkOffloadCertificate(problem, link, proof), "");
  OffloadCertificate bad = proof;
  bad.linkUs = 50;
  EXPECT_NE(checkOffloadCertificate(problem, link, bad), "");
  bad = proof;
  bad.movedBytes = 3000;
  EXPECT_NE(checkOffloadCertificate(problem, link, bad), "");
  bad = proof;
  bad.boundUs = proof.compute.boundUs + 2000;
  EXPECT_NE(checkOffloadCertificate(problem, link, bad), "");
}

} // namespace
} // namespace sluice
