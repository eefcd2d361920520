// Contiguous groups of a chain, against all of them.

#include "passes/planning/ChainPartition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace sluice {
namespace {

ChainProblem randomChain(std::mt19937 &random, size_t count) {
  auto below = [&](int64_t limit) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(limit));
  };
  ChainProblem problem;
  bool equal = below(4) == 0;
  for (size_t i = 0; i < count; ++i)
    problem.blocks.push_back({equal ? 100 : below(1000),
                              equal ? 10.0 : static_cast<double>(below(50)),
                              100 * (1 + below(5))});
  problem.groups = static_cast<int32_t>(1 + below(static_cast<int64_t>(count)));
  const double slacks[] = {0, 0.05, 0.5};
  problem.slack = slacks[below(3)];
  return problem;
}

struct Best {
  double least = INFINITY;
  int64_t cutBytes = INT64_MAX;
  double load = INFINITY;
};

/// Calls `see` with the begins of every partition.
template <typename See> void everyPartition(const ChainProblem &problem, const See &see) {
  size_t count = problem.blocks.size();
  for (uint32_t cuts = 0; cuts < 1u << (count - 1); ++cuts) {
    if (__builtin_popcount(cuts) != problem.groups - 1)
      continue;
    std::vector<size_t> begins{0};
    for (size_t i = 1; i < count; ++i)
      if (cuts >> (i - 1) & 1)
        begins.push_back(i);
    see(begins);
  }
}

/// By the definition, without prefix sums.
double loadOf(const ChainProblem &problem, const std::vector<size_t> &begins) {
  double allBytes = 0, allUs = 0, most = 0;
  for (const auto &block : problem.blocks) {
    allBytes += static_cast<double>(block.bytes);
    allUs += block.us;
  }
  for (size_t g = 0; g < begins.size(); ++g) {
    size_t end = g + 1 < begins.size() ? begins[g + 1] : problem.blocks.size();
    double bytes = 0, us = 0;
    for (size_t i = begins[g]; i < end; ++i) {
      bytes += static_cast<double>(problem.blocks[i].bytes);
      us += problem.blocks[i].us;
    }
    if (allBytes > 0)
      most = std::max(most, bytes / allBytes * problem.groups);
    if (allUs > 0)
      most = std::max(most, us / allUs * problem.groups);
  }
  return most;
}

int64_t cutOf(const ChainProblem &problem, const std::vector<size_t> &begins) {
  int64_t sum = 0;
  for (size_t g = 1; g < begins.size(); ++g)
    sum += problem.blocks[begins[g] - 1].cutBytes;
  return sum;
}

Best bruteForce(const ChainProblem &problem) {
  Best best;
  everyPartition(problem, [&](const std::vector<size_t> &begins) {
    best.least = std::min(best.least, loadOf(problem, begins));
  });
  everyPartition(problem, [&](const std::vector<size_t> &begins) {
    double load = loadOf(problem, begins);
    if (load > best.least * (1 + problem.slack) + 1e-12)
      return;
    int64_t bytes = cutOf(problem, begins);
    if (bytes > best.cutBytes)
      return;
    best.load = bytes < best.cutBytes ? load : std::min(best.load, load);
    best.cutBytes = bytes;
  });
  return best;
}

TEST(ChainPartition, IsTheBestOfAll) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 300; ++trial) {
    ChainProblem problem = randomChain(random, 1 + trial % 12);
    ChainPartition found = partitionChain(problem);
    ASSERT_EQ(found.error, "");
    Best best = bruteForce(problem);
    EXPECT_NEAR(found.leastLoad, best.least, 1e-9) << trial;
    EXPECT_EQ(found.cutBytes, best.cutBytes) << trial;
    EXPECT_NEAR(found.load, best.load, 1e-9) << trial;
    ASSERT_EQ(found.begins.size(), static_cast<size_t>(problem.groups));
    std::vector<size_t> begins(found.begins.begin(), found.begins.end());
    EXPECT_TRUE(std::is_sorted(begins.begin(), begins.end(), std::less_equal<>()));
    EXPECT_NEAR(loadOf(problem, begins), found.load, 1e-9);
    EXPECT_EQ(cutOf(problem, begins), found.cutBytes);
  }
}

TEST(ChainPartition, SixteenBlocks) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 3; ++trial) {
    ChainProblem problem = randomChain(random, 16);
    ChainPartition found = partitionChain(problem);
    Best best = bruteForce(problem);
    EXPECT_NEAR(found.leastLoad, best.least, 1e-9);
    EXPECT_EQ(found.cutBytes, best.cutBytes);
    EXPECT_NEAR(found.load, best.load, 1e-9);
  }
}

TEST(ChainPartition, EqualLayersGiveEqualGroups) {
  ChainProblem problem;
  problem.blocks.assign(96, {1000, 5, 64});
  problem.groups = 12;
  problem.slack = 0.05;
  ChainPartition found = partitionChain(problem);
  EXPECT_DOUBLE_EQ(found.load, 1);
  for (int32_t g = 0; g < 12; ++g)
    EXPECT_EQ(found.begins[g], 8 * g);
}

TEST(ChainPartition, MoreGroupsThanBlocksAreAnError) {
  ChainProblem problem;
  problem.blocks.assign(3, {1, 1, 1});
  problem.groups = 4;
  EXPECT_EQ(partitionChain(problem).error, "expected 1 to 3 groups of 3 blocks, found 4");
}

} // namespace
} // namespace sluice
