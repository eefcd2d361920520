#include "runtime/continual/TaskMetrics.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

const TaskMatrix matrix = {{0.9, 0.1, 0.2}, {0.7, 0.8, 0.1}, {0.75, 0.6, 0.9}};

TEST(TaskMetrics, AreThoseOfThePapers) {
  EXPECT_DOUBLE_EQ(*averageFigure(matrix), (0.75 + 0.6 + 0.9) / 3);
  EXPECT_DOUBLE_EQ(*backwardTransfer(matrix), ((0.75 - 0.9) + (0.6 - 0.8)) / 2);
  EXPECT_DOUBLE_EQ(*meanForgetting(matrix), ((0.9 - 0.75) + (0.8 - 0.6)) / 2);
}

TEST(TaskMetrics, TheBestNeedNotBeTheFirst) {
  TaskMatrix rising = {{0.5, 0.1}, {0.7, 0.8}};
  EXPECT_DOUBLE_EQ(*backwardTransfer(rising), 0.7 - 0.5);
  EXPECT_DOUBLE_EQ(*meanForgetting(rising), 0.5 - 0.7);
  rising = {{0.5, 0.1, 0}, {0.9, 0.8, 0}, {0.6, 0.7, 1}};
  EXPECT_DOUBLE_EQ(*meanForgetting(rising), ((0.9 - 0.6) + (0.8 - 0.7)) / 2);
}

TEST(TaskMetrics, OneTaskHasForgottenNothing) {
  TaskMatrix one = {{0.9, 0.1}};
  EXPECT_DOUBLE_EQ(*averageFigure(one), 0.9); // of what was learned
  EXPECT_FALSE(backwardTransfer(one));
  EXPECT_FALSE(meanForgetting(one));
  EXPECT_FALSE(averageFigure({}));
}

} // namespace
} // namespace sluice
