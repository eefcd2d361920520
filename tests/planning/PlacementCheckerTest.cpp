#include "passes/planning/PlacementChecker.h"

#include <gtest/gtest.h>

using namespace sluice;

namespace {

/// Two buffers live together, a third after them.
PlacementProblem threeBuffers() {
  PlacementProblem problem;
  problem.buffers = {{0, 2, 100, 64, {}}, {1, 3, 64, 64, {}}, {3, 4, 64, 64, {}}};
  return problem;
}

PlacementSolution placed(std::vector<int64_t> offsets, int64_t peak) {
  PlacementSolution solution;
  solution.offsets = std::move(offsets);
  solution.peakBytes = peak;
  solution.lowerBoundBytes = 192; // 128 + 64
  return solution;
}

TEST(PlacementChecker, AcceptsSoundPlacement) {
  EXPECT_EQ(checkPlacement(threeBuffers(), placed({0, 128, 0}, 192)), "");
}

TEST(PlacementChecker, EndIsExclusive) {
  // Buffer 2 begins when buffer 1 ends and takes its place.
  EXPECT_EQ(checkPlacement(threeBuffers(), placed({0, 128, 128}, 192)), "");
}

TEST(PlacementChecker, NamesTheBuffersThatOverlap) {
  EXPECT_EQ(checkPlacement(threeBuffers(), placed({0, 64, 0}, 128)),
            "buffer 0 and buffer 1 overlap at time 1 and byte 64");
  EXPECT_EQ(checkPlacement(threeBuffers(), placed({64, 0, 0}, 192)), "");
  EXPECT_EQ(checkPlacement(threeBuffers(), placed({64, 128, 0}, 192)),
            "buffer 0 and buffer 1 overlap at time 1 and byte 128");
}

TEST(PlacementChecker, CountsThePaddingOfTheAlignment) {
  // 100 bytes are padded to 128, so 64 more at 100 would overlap even were they aligned.
  PlacementProblem problem = threeBuffers();
  problem.buffers[1].alignBytes = 4;
  EXPECT_EQ(checkPlacement(problem, placed({0, 100, 0}, 164)),
            "buffer 0 and buffer 1 overlap at time 1 and byte 100");
}

TEST(PlacementChecker, RefusesMisalignedAndNegativeOffsets) {
  EXPECT_EQ(checkPlacement(threeBuffers(), placed({0, 130, 0}, 194)),
            "buffer 1 lies at 130, not a multiple of its alignment 64");
  EXPECT_EQ(checkPlacement(threeBuffers(), placed({0, 128, -64}, 192)),
            "buffer 2 has the negative offset -64");
}

TEST(PlacementChecker, RefusesMovedFixedOffset) {
  PlacementProblem problem = threeBuffers();
  problem.buffers[2].fixedOffset = 64;
  EXPECT_EQ(checkPlacement(problem, placed({0, 128, 0}, 192)),
            "buffer 2 lies at 0, expected the fixed 64");
}

TEST(PlacementChecker, RefusesWrongStatements) {
  EXPECT_EQ(checkPlacement(threeBuffers(), placed({0, 128, 0}, 128)),
            "the peak is stated as 128, found 192");
  PlacementSolution solution = placed({0, 128, 0}, 192);
  solution.lowerBoundBytes = 128;
  EXPECT_EQ(checkPlacement(threeBuffers(), solution),
            "the lower bound is stated as 128, found 192");
  PlacementProblem problem = threeBuffers();
  problem.capacityBytes = 128;
  EXPECT_EQ(checkPlacement(problem, placed({0, 128, 0}, 192)),
            "the solution says that it fits, but its peak is 192");
}

TEST(PlacementChecker, RefusesWrongCount) {
  EXPECT_EQ(checkPlacement(threeBuffers(), placed({0, 128}, 192)),
            "the solution has 2 offsets, expected 3");
}

} // namespace
