#include "passes/planning/MemoryPlanner.h"
#include "passes/planning/PlacementChecker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

using namespace sluice;

namespace {

using Buffer = PlacementProblem::Buffer;

int64_t paddedSize(const Buffer &b) {
  return (b.sizeBytes + b.alignBytes - 1) / b.alignBytes * b.alignBytes;
}

/// Lowest aligned offset of buffer `i` that hits none of `placed`.
int64_t lowestFree(const PlacementProblem &problem, size_t i,
                   const std::vector<size_t> &placed,
                   const std::vector<int64_t> &offsets) {
  const Buffer &b = problem.buffers[i];
  int64_t offset = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t other : placed) {
      const Buffer &o = problem.buffers[other];
      int64_t end = offsets[other] + paddedSize(o);
      if (b.begin < o.end && o.begin < b.end && offset < end &&
          offsets[other] < offset + paddedSize(b)) {
        offset = (end + b.alignBytes - 1) / b.alignBytes * b.alignBytes;
        moved = true;
      }
    }
  }
  return offset;
}

/// Least peak by trying every order of the buffers, each at the lowest place that is free
/// in that order. Some order gives an optimal placement: the one by rising offset.
int64_t bruteForcePeak(const PlacementProblem &problem) {
  std::vector<size_t> order, fixed;
  std::vector<int64_t> offsets(problem.buffers.size());
  int64_t fixedPeak = 0;
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    const Buffer &b = problem.buffers[i];
    (b.fixedOffset ? fixed : order).push_back(i);
    offsets[i] = b.fixedOffset.value_or(0);
    if (b.fixedOffset)
      fixedPeak = std::max(fixedPeak, offsets[i] + paddedSize(b));
  }
  int64_t best = INT64_MAX;
  do {
    int64_t peak = fixedPeak;
    std::vector<size_t> placed = fixed;
    for (size_t i : order) {
      offsets[i] = lowestFree(problem, i, placed, offsets);
      placed.push_back(i);
      peak = std::max(peak, offsets[i] + paddedSize(problem.buffers[i]));
    }
    best = std::min(best, peak);
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

PlacementProblem randomProblem(std::mt19937 &rng, int count, int horizon, int sizes) {
  PlacementProblem problem;
  for (int i = 0; i < count; ++i) {
    int64_t begin = rng() % unsigned(horizon);
    problem.buffers.push_back({begin,
                               begin + 1 + int64_t(rng() % unsigned(horizon / 2)),
                               int64_t(1 + rng() % unsigned(sizes)),
                               1,
                               {}});
  }
  return problem;
}

/// Activations live from their place in the forward pass to the mirrored one, with
/// short-lived gradients.
PlacementProblem trainingGraph(int layers, std::mt19937 &rng) {
  PlacementProblem problem;
  for (int64_t i = 0; i < layers; ++i) {
    int64_t size = 64 * (1 + int64_t(rng() % 1000));
    problem.buffers.push_back({i, 2 * layers - i, size, 64, {}});
    problem.buffers.push_back({2 * layers - i - 1, 2 * layers - i + 1, size, 64, {}});
    problem.buffers.push_back({i, i + 1, 64 * int64_t(rng() % 500), 64, {}});
  }
  return problem;
}

void expectSound(const PlacementProblem &problem, const PlacementSolution &solution) {
  EXPECT_EQ(checkPlacement(problem, solution), "");
}

TEST(MemoryPlanner, EmptyProblem) {
  PlacementSolution solution = placeBuffers({});
  EXPECT_EQ(solution.peakBytes, 0);
  EXPECT_TRUE(solution.optimal);
}

TEST(MemoryPlanner, BuffersWithoutBytesOrLifeTakeNoPlace) {
  PlacementProblem problem;
  problem.buffers = {{0, 5, 0, 64, {}}, {3, 3, 100, 64, {}}, {0, 5, 10, 64, {}}};
  PlacementSolution solution = placeBuffers(problem);
  expectSound(problem, solution);
  EXPECT_EQ(solution.peakBytes, 64);
}

TEST(MemoryPlanner, ReusesBytesWhenTheEndMeetsTheBegin) {
  PlacementProblem problem;
  problem.buffers = {{0, 1, 64, 64, {}}, {1, 2, 64, 64, {}}};
  EXPECT_EQ(placeBuffers(problem).peakBytes, 64);
}

TEST(MemoryPlanner, EqualsBruteForceOnSmallProblems) {
  std::mt19937 rng(7);
  for (int round = 0; round < 120; ++round) {
    PlacementProblem problem = randomProblem(rng, 7, 8, 6);
    PlacementSolution solution = placeBuffers(problem);
    expectSound(problem, solution);
    EXPECT_EQ(solution.peakBytes, bruteForcePeak(problem)) << "round " << round;
    EXPECT_TRUE(solution.optimal);
  }
}

TEST(MemoryPlanner, EqualsBruteForceAboveTheBound) {
  // Mixed alignments and fixed offsets in the way keep the bound out of reach.
  std::mt19937 rng(8);
  int aboveBound = 0, searched = 0;
  for (int round = 0; round < 300; ++round) {
    PlacementProblem problem = randomProblem(rng, 7, 8, 12);
    for (Buffer &buffer : problem.buffers)
      buffer.alignBytes = int64_t(1) << (rng() % 4);
    if (round % 2)
      problem.buffers[0].fixedOffset = 8 * int64_t(rng() % 3);
    PlacementSolution solution = placeBuffers(problem);
    expectSound(problem, solution);
    EXPECT_EQ(solution.peakBytes, bruteForcePeak(problem)) << "round " << round;
    EXPECT_TRUE(solution.optimal);
    aboveBound += solution.peakBytes > solution.lowerBoundBytes;
    searched += solution.method == "branch and bound";
  }
  EXPECT_GT(aboveBound, 20);
  EXPECT_GT(searched, 0) << "the exact search never found the answer";
}

TEST(MemoryPlanner, KeepsFixedOffsets) {
  std::mt19937 rng(9);
  for (int round = 0; round < 100; ++round) {
    PlacementProblem problem = randomProblem(rng, 12, 10, 9);
    PlacementSolution free = placeBuffers(problem);
    // Fixing some buffers where they lie in a good placement must not make it worse.
    for (size_t i = 0; i < 4; ++i)
      problem.buffers[i].fixedOffset = free.offsets[i];
    PlacementSolution solution = placeBuffers(problem);
    expectSound(problem, solution);
    EXPECT_EQ(solution.peakBytes, free.peakBytes) << "round " << round;
  }
}

TEST(MemoryPlanner, TrainingGraphsMeetTheBound) {
  std::mt19937 rng(10);
  for (int layers : {1, 3, 10, 100, 1000}) {
    PlacementProblem problem = trainingGraph(layers, rng);
    PlacementSolution solution = placeBuffers(problem);
    expectSound(problem, solution);
    EXPECT_EQ(solution.peakBytes, solution.lowerBoundBytes) << layers << " layers";
  }
}

TEST(MemoryPlanner, StopsAtTheCapacity) {
  std::mt19937 rng(11);
  PlacementProblem problem = randomProblem(rng, 200, 100, 50);
  problem.capacityBytes = 2 * placeBuffers(problem).lowerBoundBytes;
  PlacementSolution solution = placeBuffers(problem);
  expectSound(problem, solution);
  EXPECT_TRUE(solution.fits);
  EXPECT_EQ(solution.nodes, 0);
  problem.capacityBytes = solution.lowerBoundBytes - 1;
  solution = placeBuffers(problem);
  expectSound(problem, solution);
  EXPECT_FALSE(solution.fits);
  EXPECT_EQ(solution.nodes, 0); // what is sure not to fit is not searched
}

TEST(MemoryPlanner, SaysWhetherBytesAreEnoughAsTheFullSearchDoes) {
  std::mt19937 rng(14);
  int early = 0;
  for (int round = 0; round < 6; ++round) {
    PlacementProblem problem = randomProblem(rng, 60, 30, 500);
    problem.nodeBudget = 2000;
    PlacementSolution full = placeBuffers(problem);
    int64_t peak = full.peakBytes, bound = full.lowerBoundBytes;
    for (int64_t enough :
         {bound - 64, bound, peak - 64, peak, peak + peak / 20, 2 * peak}) {
      problem.enoughBytes = enough;
      PlacementSolution solution = placeBuffers(problem);
      expectSound(problem, solution);
      EXPECT_EQ(solution.peakBytes <= enough, peak <= enough);
      early += solution.peakBytes > peak;
    }
  }
  EXPECT_GT(early, 4); // it stops before
}

TEST(MemoryPlanner, SameProblemSameOffsets) {
  std::mt19937 rng(12);
  PlacementProblem problem = randomProblem(rng, 300, 60, 1000);
  problem.nodeBudget = 5000;
  EXPECT_EQ(placeBuffers(problem).offsets, placeBuffers(problem).offsets);
}

TEST(MemoryPlanner, NodeBudgetIsKept) {
  std::mt19937 rng(13);
  PlacementProblem problem = randomProblem(rng, 150, 40, 100000);
  problem.nodeBudget = 700;
  PlacementSolution solution = placeBuffers(problem);
  expectSound(problem, solution);
  EXPECT_LE(solution.nodes, 700);
}

TEST(MemoryPlanner, HundredThousandBuffers) {
  std::mt19937 rng(14);
  PlacementProblem nested = trainingGraph(33'400, rng);
  PlacementSolution solution = placeBuffers(nested);
  expectSound(nested, solution);
  EXPECT_LE(solution.gap(), 0.01);

  PlacementProblem mixed;
  for (int i = 0; i < 100'000; ++i) {
    int64_t begin = rng() % 100'000;
    int64_t life = 1 + int64_t(rng() % (rng() % 20 ? 50 : 5000));
    mixed.buffers.push_back({begin, begin + life, 64 * int64_t(1 + rng() % 100), 64, {}});
  }
  solution = placeBuffers(mixed);
  expectSound(mixed, solution);
  RecordProperty("gap", std::to_string(solution.gap()));
  EXPECT_LE(solution.gap(), 0.05) << solution.method;
}

TEST(MemoryPlanner, RefusesMalformedProblems) {
  auto errorOf = [](std::vector<Buffer> buffers) {
    PlacementProblem problem;
    problem.buffers = std::move(buffers);
    return placeBuffers(problem).error;
  };
  EXPECT_EQ(errorOf({{0, 1, -1, 64, {}}}), "buffer 0 has size -1, expected 0 to 2^60");
  EXPECT_EQ(errorOf({{2, 1, 1, 64, {}}}), "buffer 0 ends at 1, before its begin 2");
  EXPECT_EQ(errorOf({{0, 1, 1, 48, {}}}),
            "buffer 0 has alignment 48, expected a power of two");
  EXPECT_EQ(errorOf({{0, 1, 1, 64, 32}}),
            "buffer 0 has fixed offset 32, expected a multiple of its alignment 64");
  EXPECT_EQ(errorOf({{0, 2, 128, 64, 0}, {1, 3, 64, 64, 64}}),
            "the fixed offsets of buffers 0 and 1 overlap while both are live");
  int64_t huge = int64_t(1) << 60;
  EXPECT_EQ(errorOf({{0, 1, huge, 64, {}}, {0, 1, 64, 64, {}}}),
            "the sizes of all buffers add up to more than 2^60 bytes");
}

TEST(MemoryPlanner, MovesCloseSmallGaps) {
  const int64_t rows[][3] = {
#include "decoder-buffers.inc"
  };
  PlacementProblem problem;
  for (auto [begin, end, bytes] : rows)
    problem.buffers.push_back({begin, end, bytes, 64, {}});
  PlacementSolution solution = placeBuffers(problem);
  EXPECT_EQ(checkPlacement(problem, solution), "");
  EXPECT_LE(solution.gap(), 0.01); // 0.018 without
}

TEST(MemoryPlanner, SwapsReachTheBoundWhereTheSearchDoesNot) {
  const int64_t rows[][3] = {
#include "mlp-buffers.inc"
  };
  PlacementProblem problem;
  for (auto [begin, end, bytes] : rows)
    problem.buffers.push_back({begin, end, bytes, 64, {}});
  PlacementSolution solution = placeBuffers(problem);
  EXPECT_EQ(checkPlacement(problem, solution), "");
  EXPECT_EQ(solution.peakBytes, 72'000);
  EXPECT_EQ(solution.lowerBoundBytes, 72'000);
  EXPECT_TRUE(solution.optimal);
  EXPECT_EQ(solution.method, "first fit, swapped");
  EXPECT_EQ(placeBuffers(problem).offsets, solution.offsets);
}

} // namespace
