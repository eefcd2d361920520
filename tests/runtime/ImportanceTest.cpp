// What probes are made of: blocks, means with their errors, and paired losses.

#include "runtime/probe/Importance.h"
#include "runtime/probe/LossDifference.h"
#include "runtime/probe/ProbeFile.h"

#include <array>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

namespace sluice {
namespace {

TEST(Importance, TilesAndRowsAreBlocks) {
  using Blocks = ImportanceBlocks;
  std::vector<int64_t> matrix{300, 129}, kernel{7, 3, 3}, vector{500};
  EXPECT_EQ(importanceGrid(Blocks::tiles, matrix).count(), 6);
  EXPECT_EQ(importanceGrid(Blocks::tiles, kernel).count(), 7);
  EXPECT_EQ(importanceGrid(Blocks::tiles, vector).count(), 1);
  EXPECT_EQ(importanceGrid(Blocks::tensor, matrix).count(), 1);
  std::vector<float> weights(300 * 129);
  for (size_t i = 0; i < weights.size(); ++i)
    weights[i] = static_cast<float>(std::sin(0.1 * static_cast<double>(i)));
  ParameterImportance parameter("w", matrix, Blocks::tiles, weights);
  // The last tile has 44 x 1 elements: element (299, 128) lies in it.
  parameter.window()[300 * 129 - 1] = 88;
  parameter.closeWindow(0.5, 1);
  EXPECT_DOUBLE_EQ(parameter.importance().blocks[5].mean(), 1);
  EXPECT_DOUBLE_EQ(parameter.importance().blocks[4].mean(), 0);
}

TEST(Importance, ErrorsMayBeFoundAgainForEachWindow) {
  std::vector<float> weights{0.1f, -0.37f, 70000.0f, 0.02f, 3.3f, 0.7f};
  std::vector<int64_t> shape{2, 3};
  ParameterImportance kept("w", shape, ImportanceBlocks::tensor, weights, true);
  ParameterImportance found("w", shape, ImportanceBlocks::tensor, weights, false);
  for (int window = 0; window < 2; ++window)
    for (ParameterImportance *p : {&kept, &found}) {
      p->window() = {1, 2, 0, 4, 5, 6.0 + window};
      p->closeWindow(0.5, 1);
    }
  for (size_t f = 0; f < std::size(probedFormats); ++f) {
    EXPECT_EQ(kept.increase(f).whole.count(), 2);
    if (!kept.overflows(f, 0)) {
      double mean = found.increase(f).whole.mean();
      EXPECT_NEAR(kept.increase(f).whole.mean(), mean, 0x1p-8 * mean);
      EXPECT_GT(mean, 0);
    }
    EXPECT_EQ(kept.overflows(f, 0), found.overflows(f, 0));
  }
  EXPECT_TRUE(kept.overflows(1, 0)); // fp16 ends at 65504
  EXPECT_EQ(writtenIncrease(kept, 1, 0), std::numeric_limits<float>::max());
  EXPECT_FALSE(kept.overflows(0, 0));
  EXPECT_TRUE(std::isfinite(kept.increase(1).blocks[0].standardError()));
}

TEST(Importance, DifferencesOfLossesArePairedBySecondHalves) {
  PairedRun first, second;
  for (int i = 0; i < 16; ++i) {
    first.reference.push_back(10 - i);
    first.ours.push_back(10 - i + (i < 8 ? 100 : 0.5));
    second.reference.push_back(20 - i);
    second.ours.push_back(20 - i + (i < 8 ? -100 : 1.5));
  }
  LossDifference found = compareLosses(std::array{first, second});
  EXPECT_NEAR(found.mean, 1, 1e-12);
  EXPECT_NEAR(found.ours - found.reference, 1, 1e-12);
  EXPECT_EQ(found.windows, 8);
  EXPECT_TRUE(found.isOverRuns); // two runs that differ: their error is the larger
  EXPECT_NEAR(found.standardError, 0.5, 1e-12);
  EXPECT_FALSE(found.isSeen());
  EXPECT_TRUE(compareLosses(std::array{first}).isSeen());
}

TEST(Importance, IntervalsAreStudents) {
  RunningMean mean;
  for (double x : {1.0, 2.0, 3.0, 6.0})
    mean.add(x);
  EXPECT_DOUBLE_EQ(mean.mean(), 3);
  EXPECT_NEAR(mean.standardError(), std::sqrt(14.0 / 12), 1e-12);
  EXPECT_NEAR(mean.halfInterval(), 3.1824 * std::sqrt(14.0 / 12), 1e-6);
  EXPECT_NEAR(studentQuantile(10), 2.2281, 1e-3);
  EXPECT_NEAR(studentQuantile(31), 2.0395, 1e-3);
}

} // namespace
} // namespace sluice
