// Formats by a knapsack: equal to brute force, and certified by its bound.

#include "passes/planning/FormatAssignment.h"
#include "passes/planning/FormatChecker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace sluice {
namespace {

FormatProblem::Item item(const char *name, std::vector<FormatOption> options) {
  return {name, std::move(options)};
}

/// A tensor of so many numbers, of which the increase is h * elements * 4^-bits, as that
/// of rounding is.
FormatProblem::Item tensor(int64_t elements, double h) {
  FormatProblem::Item made{"t" + std::to_string(elements), {}};
  for (int bits : {32, 16, 8, 4})
    made.options.push_back({bits == 32 ? 0 : h * double(elements) * std::pow(4, -bits),
                            elements * bits / 8, double(elements * bits) * 1e-6});
  return made;
}

FormatProblem model(std::mt19937 &random, int tensors) {
  FormatProblem problem;
  std::uniform_real_distribution<double> exponent(-6, 2);
  for (int i = 0; i < tensors; ++i) {
    int64_t elements = 32 * (1 + int64_t(random() % (1u << (random() % 16))));
    problem.items.push_back(tensor(elements, std::pow(10, exponent(random))));
  }
  return problem;
}

int64_t mostBytes(const FormatProblem &problem) {
  return walkFormats(problem).front().bytes;
}

/// The least increase within the budget, over all choices; below 0: none.
double bruteForce(const FormatProblem &problem) {
  double best = -1;
  std::vector<size_t> choice(problem.items.size(), 0);
  while (true) {
    double increase = 0;
    int64_t bytes = 0;
    for (size_t i = 0; i < choice.size(); ++i) {
      increase += problem.items[i].options[choice[i]].increase;
      bytes += problem.items[i].options[choice[i]].bytes;
    }
    if (bytes <= problem.budgetBytes && (best < 0 || increase < best))
      best = increase;
    size_t at = 0;
    while (at < choice.size() && ++choice[at] == problem.items[at].options.size())
      choice[at++] = 0;
    if (at == choice.size())
      return best;
  }
}

TEST(FormatAssignment, WhatMattersKeepsItsBytes) {
  FormatProblem problem;
  problem.items = {item("critical", {{0, 200}, {50, 100}}),
                   item("other", {{0, 200}, {1, 100}})};
  problem.budgetBytes = 300;
  FormatSolution solution = assignFormats(problem);
  EXPECT_EQ(solution.choice, (std::vector<int32_t>{0, 1}));
  EXPECT_DOUBLE_EQ(solution.increase, 1);
  EXPECT_EQ(solution.bytes, 300);
  EXPECT_TRUE(solution.isExact);
  EXPECT_EQ(solution.gap(), 0);
  EXPECT_EQ(checkFormats(problem, solution), "");
}

TEST(FormatAssignment, TheRelaxationAloneWouldMissTheOptimum) {
  // By slope the first item moves first and overshoots; moving the second is cheaper.
  FormatProblem problem;
  problem.items = {item("a", {{0, 1000}, {9, 0}}), item("b", {{0, 100}, {2, 0}})};
  problem.budgetBytes = 1000;
  FormatSolution solution = assignFormats(problem);
  EXPECT_EQ(solution.choice, (std::vector<int32_t>{0, 1}));
  EXPECT_LT(solution.dualIncrease, solution.increase);
  EXPECT_EQ(solution.gap(), 0);
}

TEST(FormatAssignment, OptionsOffTheHullFillABudget) {
  FormatProblem problem;
  problem.items = {item("a", {{0, 100}, {6, 50}, {10, 0}})};
  problem.budgetBytes = 60;
  EXPECT_EQ(assignFormats(problem).choice, (std::vector<int32_t>{1}));
}

TEST(FormatAssignment, EqualsBruteForceOnRandomInstances) {
  std::mt19937 random(11);
  for (int round = 0; round < 400; ++round) {
    FormatProblem problem;
    int items = 1 + int(random() % 6);
    for (int i = 0; i < items; ++i) {
      FormatProblem::Item made{"i", {}};
      int options = 1 + int(random() % 4);
      for (int j = 0; j < options; ++j)
        made.options.push_back({double(random() % 1000) / (1 + random() % 50),
                                int64_t(random() % 60), double(random() % 5)});
      problem.items.push_back(made);
    }
    problem.budgetBytes = int64_t(random() % 200);
    FormatSolution solution = assignFormats(problem);
    double best = bruteForce(problem);
    ASSERT_EQ(checkFormats(problem, solution), "") << round;
    ASSERT_EQ(best < 0, !solution.error.empty()) << round;
    if (best < 0)
      continue;
    ASSERT_NEAR(solution.increase, best, 1e-12 * (1 + best)) << round;
    ASSERT_TRUE(solution.isExact);
  }
}

TEST(FormatAssignment, GapsAreBelowAThousandthForModels) {
  std::mt19937 random(5);
  for (int tensors : {6, 20, 62, 161, 723})
    for (double share : {0.9, 0.75, 0.6, 0.5, 0.4, 0.3, 0.2, 0.15}) {
      FormatProblem problem = model(random, tensors);
      problem.budgetBytes = int64_t(share * double(mostBytes(problem)));
      FormatSolution solution = assignFormats(problem);
      ASSERT_EQ(solution.error, "");
      ASSERT_EQ(checkFormats(problem, solution), "") << tensors << " " << share;
      EXPECT_LE(solution.gap(), 1e-3) << tensors << " " << share;
    }
}

TEST(FormatAssignment, MoreBytesNeverRaiseTheIncrease) {
  std::mt19937 random(3);
  FormatProblem problem = model(random, 40);
  double before = INFINITY;
  for (int percent = 13; percent <= 100; percent += 3) {
    problem.budgetBytes = mostBytes(problem) * percent / 100;
    FormatSolution solution = assignFormats(problem);
    EXPECT_LE(solution.increase, before) << percent;
    before = solution.increase;
  }
  EXPECT_EQ(before, 0);
}

TEST(FormatAssignment, IsTheSameEveryTime) {
  std::mt19937 random(9);
  FormatProblem problem = model(random, 200);
  problem.budgetBytes = mostBytes(problem) / 2;
  FormatSolution first = assignFormats(problem), second = assignFormats(problem);
  EXPECT_EQ(first.choice, second.choice);
  EXPECT_EQ(first.states, second.states);
}

TEST(FormatAssignment, FewStatesGiveAWiderGapButATrueOne) {
  std::mt19937 random(21);
  FormatProblem problem = model(random, 30);
  problem.budgetBytes = mostBytes(problem) / 2;
  FormatSolution exact = assignFormats(problem);
  problem.width = 1;
  FormatSolution rough = assignFormats(problem);
  EXPECT_EQ(checkFormats(problem, rough), "");
  EXPECT_GE(rough.increase, exact.increase);
  EXPECT_LE(rough.boundIncrease, exact.increase * (1 + 1e-12));
}

TEST(FormatAssignment, ABudgetBelowTheSmallestNamesIt) {
  FormatProblem problem;
  problem.items = {item("a", {{0, 100}, {6, 50}}), item("b", {{0, 8}})};
  problem.budgetBytes = 57;
  FormatSolution solution = assignFormats(problem);
  EXPECT_EQ(solution.smallestBytes, 58);
  EXPECT_NE(solution.error.find("58 bytes"), std::string::npos) << solution.error;
  EXPECT_TRUE(solution.choice.empty());
  problem.items[0].options[0].increase = NAN;
  EXPECT_NE(assignFormats(problem).error.find("'a'"), std::string::npos);
}

TEST(FormatAssignment, WalkGoesFromLeastIncreaseToFewestBytes) {
  std::mt19937 random(2);
  FormatProblem problem = model(random, 25);
  std::vector<FormatStep> walk = walkFormats(problem);
  EXPECT_EQ(walk.front().increase, 0);
  problem.budgetBytes = 0;
  EXPECT_EQ(walk.back().bytes, assignFormats(problem).smallestBytes);
  for (size_t i = 1; i < walk.size(); ++i) {
    EXPECT_LT(walk[i].bytes, walk[i - 1].bytes);
    EXPECT_GE(walk[i].increase, walk[i - 1].increase);
    // Each is the best for its own bytes.
    if (i % 7)
      continue;
    problem.budgetBytes = walk[i].bytes;
    EXPECT_NEAR(assignFormats(problem).increase, walk[i].increase,
                1e-12 * walk[i].increase);
  }
}

TEST(FormatAssignment, OrdersMeetTheBudgetAndImportanceIsNoWorse) {
  std::mt19937 random(17);
  FormatProblem problem = model(random, 50);
  problem.budgetBytes = mostBytes(problem) * 2 / 5;
  FormatSolution best = assignFormats(problem);
  for (const auto &order : {orderBySize(problem), orderAtRandom(problem, 1)}) {
    std::vector<int32_t> sorted = order;
    std::sort(sorted.begin(), sorted.end());
    for (size_t i = 0; i < sorted.size(); ++i)
      ASSERT_EQ(sorted[i], int32_t(i));
    FormatSolution other = assignInOrder(problem, order);
    EXPECT_EQ(checkFormats(problem, other), "");
    EXPECT_GE(other.increase, best.increase);
  }
  EXPECT_NE(orderAtRandom(problem, 1), orderAtRandom(problem, 2));
}

TEST(FormatChecker, FindsWrongSumsBoundsAndBudgets) {
  FormatProblem problem;
  problem.items = {item("a", {{0, 200}, {50, 100}}), item("b", {{0, 200}, {1, 100}})};
  problem.budgetBytes = 300;
  FormatSolution right = assignFormats(problem);
  auto wrong = [&](auto change) {
    FormatSolution solution = right;
    change(solution);
    return checkFormats(problem, solution);
  };
  EXPECT_EQ(wrong([](FormatSolution &) {}), "");
  EXPECT_NE(wrong([](FormatSolution &s) { s.choice[0] = 2; }), "");
  EXPECT_NE(wrong([](FormatSolution &s) { s.choice.pop_back(); }), "");
  EXPECT_NE(wrong([](FormatSolution &s) { s.bytes -= 1; }), "");
  EXPECT_NE(wrong([](FormatSolution &s) { s.increase = 0.5; }), "");
  EXPECT_NE(wrong([](FormatSolution &s) { s.choice = {0, 0}, s.bytes = 400; }), "");
  EXPECT_NE(wrong([](FormatSolution &s) { s.dualIncrease = s.boundIncrease = 40; }), "");
  EXPECT_NE(wrong([](FormatSolution &s) { s.boundIncrease = s.increase + 1; }), "");
  EXPECT_NE(wrong([](FormatSolution &s) { s.increasePerByte = -1; }), "");
}

} // namespace
} // namespace sluice
