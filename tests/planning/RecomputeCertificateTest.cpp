#include "RecomputeSteps.h"

#include "passes/planning/Frontier.h"

#include <gtest/gtest.h>

using namespace sluice;
using namespace sluice::testing;

namespace {

struct Certified : ::testing::Test {
  RecomputeProblem problem = mobilenetStep(8);
  Frontier frontier = Frontier::build(problem);
  int64_t budget = frontier.members().back().peakBytes * 7 / 10;
  RecomputeSolution plan = frontier.planForBudget(budget);
  RecomputeCertificate proof = frontier.certificate(budget);

  void SetUp() override {
    ASSERT_EQ(checkSchedule(problem, plan), "");
    ASSERT_EQ(checkCertificate(problem, proof), "");
    ASSERT_GE(proof.position, 0);
    ASSERT_FALSE(proof.saves.empty());
  }
  bool refusesSchedule() { return !checkSchedule(problem, plan).empty(); }
  bool refusesProof() { return !checkCertificate(problem, proof).empty(); }
};

TEST_F(Certified, RefusesAHigherBound) {
  proof.boundUs *= 1.001;
  EXPECT_TRUE(refusesProof());
}

TEST_F(Certified, RefusesASmallerBudget) {
  proof.budgetBytes = proof.budgetBytes * 12 / 10;
  EXPECT_TRUE(refusesProof());
}

TEST_F(Certified, RefusesMoreFlowThanAPriceAllows) {
  for (auto &save : proof.saves)
    save.flow = save.flow * 2 + 1;
  EXPECT_TRUE(refusesProof());
}

TEST_F(Certified, RefusesFlowFromNowhere) {
  ASSERT_FALSE(proof.reads.empty());
  proof.reads[0].flow += int64_t(1) << 40;
  EXPECT_TRUE(refusesProof());
}

TEST_F(Certified, RefusesAFlowAlongNoInput) {
  proof.reads.push_back({proof.saves[0].value, -3, 1});
  EXPECT_TRUE(refusesProof());
  proof.reads.back() = {0, problem.ops.back().inputs[0], 1};
  EXPECT_TRUE(refusesProof());
}

TEST_F(Certified, RefusesABoundOfNothing) {
  proof = {};
  proof.budgetBytes = budget;
  proof.boundUs = plan.onceUs * 1.01;
  EXPECT_TRUE(refusesProof());
}

TEST_F(Certified, ProvesThatABudgetIsTooSmall) {
  proof = frontier.certificate(frontier.structuralMinimumBytes() / 2);
  EXPECT_TRUE(proof.infeasible);
  EXPECT_EQ(checkCertificate(problem, proof), "");
  proof.budgetBytes = budget;
  EXPECT_TRUE(refusesProof());
}

TEST_F(Certified, RefusesThatAValueCannotBeHad) {
  // Least budget of ResNet: a value that its reader cannot have.
  RecomputeProblem resnet = resnet50Step(8);
  Frontier plans = Frontier::build(resnet);
  proof = plans.certificate(plans.structuralMinimumBytes() - 1);
  ASSERT_GE(proof.value, 0);
  EXPECT_EQ(checkCertificate(resnet, proof), "");
  ++proof.budgetBytes;
  EXPECT_EQ(checkCertificate(resnet, proof), "value " + std::to_string(proof.value) +
                                                 " can be computed within the budget");
}

TEST_F(Certified, RefusesAMissingRun) {
  plan.schedule.erase(plan.schedule.begin() + 5);
  EXPECT_TRUE(refusesSchedule());
}

TEST_F(Certified, RefusesRunsOutOfOrder) {
  std::swap(plan.schedule[plan.schedule.size() - 1],
            plan.schedule[plan.schedule.size() - 2]);
  EXPECT_TRUE(refusesSchedule());
}

TEST_F(Certified, RefusesAWrongPeakTimeOrMark) {
  plan.peakBytes -= 64;
  EXPECT_TRUE(refusesSchedule());
  plan.peakBytes += 64;
  plan.timeUs -= 1;
  EXPECT_TRUE(refusesSchedule());
  plan.timeUs += 1;
  plan.schedule[3].again = true;
  EXPECT_TRUE(refusesSchedule());
}

TEST_F(Certified, RefusesToRunABackwardOperationAgain) {
  Execution last = plan.schedule.back();
  plan.schedule.push_back({last.op, true});
  plan.timeUs += problem.ops[last.op].costUs;
  EXPECT_EQ(checkSchedule(problem, plan),
            "operation " + std::to_string(last.op) + " must not run again");
}

} // namespace
