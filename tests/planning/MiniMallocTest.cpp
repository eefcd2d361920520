// The 11 challenging problems of google/minimalloc: all are solved at a capacity of
// 1,048,576 bytes, the largest load on 9 of them, where greedy placements need 1.28 times
// that and more.

#include "passes/planning/MemoryPlanner.h"
#include "passes/planning/PlacementChecker.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

using namespace sluice;

namespace {

constexpr int64_t capacity = 1'048'576;

/// Rows `id,lower,upper,size` behind a header. Empty if there is no such file.
PlacementProblem readProblem(const std::string &letter) {
  PlacementProblem problem;
  std::ifstream file(std::string(SLUICE_SHARED) + "/data/minimalloc/" + letter +
                     ".1048576.csv");
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream row(line);
    int64_t id, begin, end, size;
    char comma;
    row >> id >> comma >> begin >> comma >> end >> comma >> size;
    EXPECT_FALSE(row.fail()) << line;
    problem.buffers.push_back({begin, end, size, 64, {}});
  }
  return problem;
}

class MiniMalloc : public testing::TestWithParam<const char *> {};

TEST_P(MiniMalloc, FitsTheCapacityWithinTheNodeBudget) {
  PlacementProblem problem = readProblem(GetParam());
  if (problem.buffers.empty())
    GTEST_SKIP() << "no minimalloc problems under " << SLUICE_SHARED;
  problem.capacityBytes = capacity;
  problem.nodeBudget = 400'000;
  PlacementSolution solution = placeBuffers(problem);
  EXPECT_EQ(checkPlacement(problem, solution), "");
  EXPECT_TRUE(solution.fits) << "peak " << solution.peakBytes;
  EXPECT_LE(solution.nodes, problem.nodeBudget);
}

INSTANTIATE_TEST_SUITE_P(Challenging, MiniMalloc,
                         testing::Values("A", "B", "C", "D", "E", "F", "G", "H", "I", "J",
                                         "K"));

} // namespace
