#include "RecomputeExact.h"
#include "RecomputeSteps.h"

#include "passes/planning/Frontier.h"

#include <gtest/gtest.h>

#include <cmath>
#include <ctime>

using namespace sluice;
using namespace sluice::testing;

namespace {

Frontier buildTimed(const RecomputeProblem &problem, const char *name) {
  std::clock_t begin = std::clock();
  Frontier frontier = Frontier::build(problem);
  double seconds = double(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_EQ(frontier.error(), "");
  std::printf(
      "%s: %zu operations, %zu plans in %.2f s of one core; least bytes %.3f of the "
      "most, "
      "%.3f of the structural minimum\n",
      name, problem.ops.size(), frontier.members().size(), seconds,
      double(frontier.smallestBytes()) / double(frontier.members().back().peakBytes),
      double(frontier.smallestBytes()) / double(frontier.structuralMinimumBytes()));
  return frontier;
}

/// Budgets of a share of the room between the structural minimum and keeping everything.
int64_t activationBudget(const Frontier &frontier, double share) {
  int64_t least = frontier.structuralMinimumBytes();
  return least + int64_t(share * double(frontier.members().back().peakBytes - least));
}

void expectWithinOnePercentOfTheBound(const RecomputeProblem &problem,
                                      const Frontier &frontier) {
  for (double share : {0.2, 0.4, 0.6, 0.8}) {
    int64_t budget = activationBudget(frontier, share);
    RecomputeSolution plan = frontier.planForBudget(budget);
    RecomputeCertificate proof = frontier.certificate(budget);
    ASSERT_EQ(checkSchedule(problem, plan), "");
    ASSERT_EQ(checkCertificate(problem, proof), "");
    EXPECT_LE(plan.timeUs, 1.01 * proof.boundUs) << share;
  }
}

/// 20 budgets from below the smallest feasible one to above the most.
void sweep(const RecomputeProblem &problem, const Frontier &frontier) {
  RecomputeCertificate tooSmall =
      frontier.certificate(frontier.structuralMinimumBytes() - 1);
  EXPECT_TRUE(tooSmall.infeasible);
  EXPECT_EQ(checkCertificate(problem, tooSmall), "");
  int64_t most = frontier.members().back().peakBytes;
  double before = INFINITY, boundBefore = INFINITY;
  for (int64_t i = 0; i < 20; ++i) {
    int64_t budget = most / 20 * (i + 1) + most / 19;
    RecomputeCertificate proof = frontier.certificate(budget);
    EXPECT_EQ(checkCertificate(problem, proof), "") << budget;
    EXPECT_LE(proof.boundUs, boundBefore * (1 + 1e-9));
    boundBefore = proof.boundUs;
    RecomputeSolution plan = frontier.planForBudget(budget);
    if (budget < frontier.smallestBytes()) {
      EXPECT_NE(plan.error.find(std::to_string(frontier.smallestBytes())),
                std::string::npos);
      continue;
    }
    EXPECT_EQ(checkSchedule(problem, plan), "") << budget;
    EXPECT_LE(plan.peakBytes, budget);
    EXPECT_LE(plan.timeUs, before);
    EXPECT_LE(proof.boundUs, plan.timeUs * (1 + 1e-9));
    EXPECT_FALSE(proof.infeasible);
    before = plan.timeUs;
  }
}

TEST(RecomputeFrontier, IsAsGoodAsAllChoicesOnRandomSteps) {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    RecomputeProblem problem = randomStep(seed, 6 + int32_t(seed % 9));
    Frontier frontier = Frontier::build(problem);
    ASSERT_EQ(frontier.error(), "");
    for (auto [peak, us] : timesOfAllChoices(problem)) {
      RecomputeSolution plan = frontier.planForBudget(peak);
      ASSERT_EQ(checkSchedule(problem, plan), "") << seed;
      EXPECT_LE(plan.timeUs, us + 1e-9) << "seed " << seed << ", budget " << peak;
    }
  }
}

TEST(RecomputeFrontier, OfCutsAloneIsCloseToAllChoices) {
  FrontierOptions cutsOnly;
  cutsOnly.exactLimit = 0;
  int32_t equal = 0, count = 0;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    RecomputeProblem problem = randomStep(seed, 6 + int32_t(seed % 9));
    Frontier frontier = Frontier::build(problem, cutsOnly);
    double best = INFINITY;
    for (auto [peak, us] : timesOfAllChoices(problem)) {
      best = std::min(best, us);
      RecomputeSolution plan = frontier.planForBudget(peak);
      equal += plan.error.empty() && plan.timeUs <= best + 1e-9;
      ++count;
    }
  }
  std::printf("%d of %d budgets without enumeration as good as all choices\n", equal,
              count);
  EXPECT_GE(equal, count * 17 / 20);
}

TEST(RecomputeFrontier, LiesBetweenTheBoundAndTheTrueOptimum) {
  for (uint32_t seed = 0; seed < 120; ++seed) {
    RecomputeProblem problem = randomStep(seed, 5 + int32_t(seed % 4));
    Frontier frontier = Frontier::build(problem);
    int64_t most = frontier.members().back().peakBytes;
    for (int64_t budget : {most, most * 3 / 4, most * 3 / 5, most / 2}) {
      double exact = exactTime(problem, budget);
      RecomputeCertificate proof = frontier.certificate(budget);
      ASSERT_EQ(checkCertificate(problem, proof), "") << seed;
      EXPECT_LE(frontier.lowerBoundUs(budget), exact + 1e-6) << seed << " " << budget;
      RecomputeSolution plan = frontier.planForBudget(budget);
      if (plan.error.empty())
        EXPECT_GE(plan.timeUs, exact - 1e-9) << seed << " " << budget;
      else if (proof.infeasible)
        EXPECT_TRUE(std::isinf(exact)) << seed << " " << budget;
    }
    int64_t tooSmall = frontier.structuralMinimumBytes() - 1;
    EXPECT_TRUE(std::isinf(exactTime(problem, tooSmall))) << seed;
    RecomputeCertificate proof = frontier.certificate(tooSmall);
    EXPECT_TRUE(proof.infeasible) << seed;
    EXPECT_EQ(checkCertificate(problem, proof), "") << seed;
  }
}

TEST(RecomputeFrontier, BoundsStepsWhoseBackwardPartMayBeMoved) {
  int32_t above = 0;
  for (uint32_t seed = 0; seed < 120; ++seed) {
    RecomputeProblem problem = randomStep(seed, 5 + int32_t(seed % 4));
    problem.backwardInOrder = false;
    Frontier frontier = Frontier::build(problem);
    int64_t most = frontier.members().back().peakBytes;
    for (int64_t budget : {most, most * 3 / 4, most * 3 / 5, most / 2, most / 3}) {
      double exact = exactTime(problem, budget);
      RecomputeCertificate proof = frontier.certificate(budget);
      ASSERT_EQ(checkCertificate(problem, proof), "") << seed;
      EXPECT_LE(proof.boundUs, exact + 1e-6) << seed << " " << budget;
      above += proof.boundUs > frontier.members().back().timeUs;
    }
  }
  EXPECT_GT(above, 30) << "bounds that say more than that everything runs";
}

class Decoder : public ::testing::TestWithParam<DecoderShape> {};

TEST_P(Decoder, IsWithinOnePercentOfTheBound) {
  RecomputeProblem problem = decoderStep(GetParam());
  Frontier frontier =
      buildTimed(problem, ("decoder of " + std::to_string(GetParam().layers)).c_str());
  double once = frontier.members().back().timeUs;
  for (double share : {0.2, 0.4, 0.6, 0.8}) {
    int64_t budget = activationBudget(frontier, share);
    RecomputeSolution plan = frontier.planForBudget(budget);
    RecomputeCertificate proof = frontier.certificate(budget);
    ASSERT_EQ(checkSchedule(problem, plan), "");
    ASSERT_EQ(checkCertificate(problem, proof), "");
    double gap = plan.timeUs / proof.boundUs - 1;
    std::printf("  %2.0f%%: extra time %.2f%%, certified gap %.3f%%\n", share * 100,
                (plan.timeUs / once - 1) * 100, gap * 100);
    EXPECT_LE(gap, 0.01);
  }
  sweep(problem, frontier);
  EXPECT_LE(double(frontier.smallestBytes()),
            1.05 * double(frontier.structuralMinimumBytes()));
  problem.backwardInOrder = false; // as real steps are planned
  Frontier free = Frontier::build(problem);
  for (double share : {0.2, 0.4, 0.6, 0.8}) {
    int64_t budget = activationBudget(frontier, share);
    RecomputeCertificate proof = free.certificate(budget);
    ASSERT_EQ(checkCertificate(problem, proof), "");
    EXPECT_LE(free.planForBudget(budget).timeUs, 1.01 * proof.boundUs);
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, Decoder,
                         ::testing::Values(DecoderShape{12, 768, 12, 8, 1024},
                                           DecoderShape{48, 1600, 25, 8, 1024},
                                           DecoderShape{96, 12288, 96, 1, 2048}));

TEST(RecomputeFrontier, GoesDownToTheStructuralMinimumOnResNet) {
  RecomputeProblem problem = resnet50Step(64);
  Frontier frontier = buildTimed(problem, "resnet50");
  sweep(problem, frontier);
  expectWithinOnePercentOfTheBound(problem, frontier);
  EXPECT_LE(double(frontier.smallestBytes()),
            1.05 * double(frontier.structuralMinimumBytes()));
}

TEST(RecomputeFrontier, GoesDownToTheStructuralMinimumOnMobileNet) {
  RecomputeProblem problem = mobilenetStep(64);
  Frontier frontier = buildTimed(problem, "mobilenet");
  sweep(problem, frontier);
  expectWithinOnePercentOfTheBound(problem, frontier);
  EXPECT_LE(double(frontier.smallestBytes()),
            1.05 * double(frontier.structuralMinimumBytes()));
}

TEST(RecomputeFrontier, RefusesWithTheSmallestBudgetThatWorks) {
  RecomputeProblem problem = mobilenetStep(8);
  Frontier frontier = Frontier::build(problem);
  int64_t smallest = frontier.smallestBytes();
  RecomputeSolution refused = frontier.planForBudget(smallest - 1);
  EXPECT_NE(refused.error.find("the smallest that can be met is " +
                               std::to_string(smallest) + ", filled by value"),
            std::string::npos)
      << refused.error;
  EXPECT_EQ(checkSchedule(problem, frontier.planForBudget(smallest)), "");
}

TEST(RecomputeFrontier, IsDeterministic) {
  RecomputeProblem problem = resnet50Step(4);
  Frontier one = Frontier::build(problem), two = Frontier::build(problem);
  ASSERT_EQ(one.members().size(), two.members().size());
  for (size_t i = 0; i < one.members().size(); ++i) {
    EXPECT_EQ(one.members()[i].timeUs, two.members()[i].timeUs);
    auto left = one.plan(i).schedule, right = two.plan(i).schedule;
    ASSERT_EQ(left.size(), right.size());
    for (size_t k = 0; k < left.size(); ++k)
      ASSERT_EQ(left[k].op, right[k].op);
  }
}

TEST(RecomputeFrontier, NeverRunsPinnedOperationsAgain) {
  RecomputeProblem problem = resnet50Step(4);
  problem.values[problem.ops[10].outputs[0]].keep = true; // the user's mark
  problem.ops[20].recomputable = false;                   // a collective
  Frontier frontier = Frontier::build(problem);
  ASSERT_EQ(frontier.error(), "");
  for (size_t i = 0; i < frontier.members().size(); ++i) {
    RecomputeSolution plan = frontier.plan(i);
    EXPECT_EQ(checkSchedule(problem, plan), "");
    for (const Execution &run : plan.schedule)
      EXPECT_FALSE(run.again && (run.op == 10 || run.op == 20));
  }
}

TEST(RecomputeFrontier, OfAStepWithoutBackwardPartIsOnePlan) {
  RecomputeProblem problem;
  problem.values = {{64, true, false, false}, {128, false, true, false}};
  problem.ops = {{1, {0}, {1}, 0, false, true, -1}};
  Frontier frontier = Frontier::build(problem);
  ASSERT_EQ(frontier.members().size(), 1u);
  EXPECT_EQ(frontier.smallestBytes(), 192);
  EXPECT_EQ(checkSchedule(problem, frontier.planForBudget(192)), "");
  EXPECT_EQ(checkCertificate(problem, frontier.certificate(192)), "");
}

TEST(RecomputeFrontier, SaysWhatIsWrongWithAProblem) {
  RecomputeProblem problem;
  problem.values = {{64, false, false, false}};
  problem.ops = {{1, {0}, {}, 0, false, true, -1}};
  EXPECT_EQ(Frontier::build(problem).error(),
            "operation 0 reads value 0 before it is computed");
  problem.ops[0].inputs = {7};
  EXPECT_EQ(Frontier::build(problem).error(),
            "operation 0 reads value 7, which does not exist");
  problem.ops[0] = {NAN, {}, {0}, 0, false, true, -1};
  EXPECT_EQ(Frontier::build(problem).error(),
            "operation 0 has a cost that is not a time");
  problem.alignBytes = 48;
  EXPECT_EQ(Frontier::build(problem).planForBudget(1).error,
            "the alignment 48 is not a power of two");
}

} // namespace
