#include "passes/planning/Order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

using namespace sluice;

namespace {

/// Builds problems node by node; values are numbered in order of their making.
struct Builder {
  OrderProblem problem;

  int32_t input(int64_t size) {
    problem.values.push_back({size, true, false});
    return int32_t(problem.values.size()) - 1;
  }
  int32_t node(std::vector<int32_t> inputs, int64_t size) {
    problem.values.push_back({size, false, false});
    int32_t value = int32_t(problem.values.size()) - 1;
    problem.nodes.push_back({std::move(inputs), {value}, 0, {}, {}});
    return value;
  }
  void keep(int32_t value) { problem.values[value].liveAtEnd = true; }
};

/// Least peak over all topological orders, by dynamic programming over sets of executed
/// nodes: what is live after a set depends on the set alone.
int64_t exactPeak(const OrderProblem &problem) {
  size_t count = problem.nodes.size();
  std::vector<int32_t> producer(problem.values.size(), -1);
  std::vector<uint32_t> readers(problem.values.size(), 0);
  for (size_t n = 0; n < count; ++n) {
    for (int32_t v : problem.nodes[n].outputs)
      producer[v] = int32_t(n);
    for (int32_t v : problem.nodes[n].inputs)
      readers[v] |= 1u << n;
  }
  auto liveAfter = [&](int32_t v, uint32_t set) {
    bool exists =
        producer[v] < 0 ? problem.values[v].preexisting : set >> producer[v] & 1;
    return exists && (problem.values[v].liveAtEnd || (readers[v] & ~set));
  };
  auto level = [&](uint32_t set) {
    int64_t bytes = 0;
    for (size_t v = 0; v < problem.values.size(); ++v)
      bytes += liveAfter(int32_t(v), set) ? problem.values[v].sizeBytes : 0;
    return bytes;
  };
  int64_t atStart = 0;
  for (const auto &value : problem.values)
    atStart += value.preexisting ? value.sizeBytes : 0;
  std::vector<int64_t> best(size_t(1) << count, INT64_MAX);
  best[0] = atStart;
  for (uint32_t set = 0; set + 1 < best.size(); ++set) {
    if (best[set] == INT64_MAX)
      continue;
    int64_t before = level(set);
    for (size_t n = 0; n < count; ++n) {
      const auto &node = problem.nodes[n];
      bool ready = !(set >> n & 1);
      for (int32_t v : node.inputs)
        ready &= producer[v] < 0 || (set >> producer[v] & 1);
      for (int32_t other : node.after)
        ready &= set >> other & 1;
      if (!ready)
        continue;
      uint32_t next = set | 1u << n;
      int64_t during = before + node.workspaceBytes;
      for (int32_t v : node.outputs)
        during += problem.values[v].sizeBytes;
      for (auto [in, out] : node.inPlace)
        if (!liveAfter(in, next))
          during -= std::min(problem.values[in].sizeBytes, problem.values[out].sizeBytes);
      best[next] = std::min(best[next], std::max(best[set], during));
    }
  }
  return best.back();
}

OrderProblem randomProblem(std::mt19937 &rng, int count) {
  Builder builder;
  std::vector<int32_t> values = {builder.input(1 + rng() % 8),
                                 builder.input(1 + rng() % 8)};
  for (int n = 0; n < count; ++n) {
    std::vector<int32_t> inputs;
    for (unsigned k = 0; k < 1 + rng() % 3; ++k) {
      // Mostly recent values, so that chains form.
      size_t back =
          rng() % 3 ? rng() % std::min<size_t>(4, values.size()) : rng() % values.size();
      inputs.push_back(values[values.size() - 1 - back]);
    }
    int32_t value = builder.node(inputs, 1 + rng() % 10);
    auto &node = builder.problem.nodes.back();
    if (rng() % 4 == 0)
      node.workspaceBytes = rng() % 6;
    if (rng() % 4 == 0)
      node.inPlace = {{inputs[0], value}};
    if (rng() % 8 == 0 && n > 0)
      node.after = {int32_t(rng() % unsigned(n))};
    if (rng() % 6 == 0)
      builder.keep(value);
    values.push_back(value);
  }
  return builder.problem;
}

/// The order is sound and its peak as stated, by the independent simulator.
OrderSolution solveChecked(const OrderProblem &problem) {
  OrderSolution solution = orderNodes(problem);
  EXPECT_EQ(solution.error, "");
  std::string error;
  EXPECT_EQ(simulatePeak(problem, solution.order, error), solution.peakBytes) << error;
  EXPECT_LE(solution.peakBytes, solution.programPeakBytes);
  EXPECT_GE(solution.peakBytes, solution.lowerBoundBytes);
  return solution;
}

TEST(Order, ChainStaysAsItIs) {
  Builder b;
  int32_t x = b.input(4);
  for (int i = 0; i < 5; ++i)
    x = b.node({x}, 4);
  b.keep(x);
  OrderSolution solution = solveChecked(b.problem);
  EXPECT_EQ(solution.order, (std::vector<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(solution.peakBytes, 8);
  EXPECT_EQ(solution.method, "program order");
}

TEST(Order, WideFanOutIsReducedBranchByBranch) {
  // 100 products of one input, each made small, all joined: breadth first needs 100 large
  // values.
  Builder b;
  int32_t x = b.input(10);
  std::vector<int32_t> large, small;
  for (int i = 0; i < 100; ++i)
    large.push_back(b.node({x}, 1000));
  for (int32_t value : large)
    small.push_back(b.node({value}, 1));
  b.keep(b.node(small, 100));
  OrderSolution solution = solveChecked(b.problem);
  EXPECT_GE(solution.programPeakBytes, 100'000);
  EXPECT_EQ(solution.peakBytes, 10 + 1000 + 99);
}

TEST(Order, UpdatesFollowTheirGradient) {
  // Backward pass first, all updates last, as a trainer writes them: each gradient would
  // live to the end.
  Builder b;
  std::vector<int32_t> weights, gradients;
  for (int i = 0; i < 20; ++i)
    weights.push_back(b.input(100));
  int32_t cotangent = b.input(10);
  for (int i = 0; i < 20; ++i) {
    gradients.push_back(b.node({cotangent}, 100));
    cotangent = b.node({cotangent, weights[size_t(i)]}, 10);
  }
  for (size_t i = 0; i < 20; ++i) {
    int32_t updated = b.node({weights[i], gradients[i]}, 100);
    b.problem.nodes.back().inPlace = {{weights[i], updated}};
    b.keep(updated);
  }
  OrderSolution solution = solveChecked(b.problem);
  EXPECT_GE(solution.programPeakBytes, 20 * 200);
  EXPECT_LE(solution.peakBytes, 20 * 100 + 100 + 20);
}

TEST(Order, CheapProducerMovesToItsReader) {
  // A large mask made first and read last.
  Builder b;
  int32_t x = b.input(1);
  int32_t mask = b.node({x}, 500);
  int32_t chain = b.node({x}, 300);
  for (int i = 0; i < 6; ++i)
    chain = b.node({chain}, i + 1 < 6 ? 300 : 2);
  b.keep(b.node({chain, mask}, 2));
  OrderSolution solution = solveChecked(b.problem);
  EXPECT_EQ(solution.programPeakBytes, 500 + 600);
  EXPECT_EQ(solution.peakBytes, 600 + 1);
}

TEST(Order, NearTheExactPeakOnRandomGraphs) {
  std::mt19937 rng(21);
  int optimal = 0;
  double excess = 0, programExcess = 0;
  constexpr int rounds = 150;
  for (int round = 0; round < rounds; ++round) {
    OrderProblem problem = randomProblem(rng, 11);
    OrderSolution solution = solveChecked(problem);
    int64_t exact = exactPeak(problem);
    EXPECT_GE(solution.peakBytes, exact) << "round " << round;
    EXPECT_LE(solution.lowerBoundBytes, exact);
    optimal += solution.peakBytes == exact;
    excess += double(solution.peakBytes) / double(exact) - 1;
    programExcess += double(solution.programPeakBytes) / double(exact) - 1;
  }
  RecordProperty("optimal", optimal);
  RecordProperty("excess", std::to_string(excess / rounds));
  RecordProperty("programExcess", std::to_string(programExcess / rounds));
  EXPECT_GE(optimal, rounds * 9 / 10);
  EXPECT_LE(excess / rounds, 0.01);
}

TEST(Order, SimulatorAgreesWithTheExactProgramOnOneOrder) {
  std::mt19937 rng(22);
  for (int round = 0; round < 50; ++round) {
    OrderProblem problem = randomProblem(rng, 8);
    // Only one order is left when each node must follow the one before.
    for (size_t n = 1; n < problem.nodes.size(); ++n)
      problem.nodes[n].after.push_back(int32_t(n) - 1);
    OrderSolution solution = solveChecked(problem);
    EXPECT_EQ(solution.peakBytes, exactPeak(problem));
  }
}

TEST(Order, TenThousandNodes) {
  std::mt19937 rng(23);
  Builder b;
  int32_t x = b.input(10);
  std::vector<int32_t> ends;
  for (int i = 0; i < 2500; ++i) {
    int32_t value = b.node({x}, 100 + rng() % 100);
    for (int k = 0; k < 3; ++k)
      value = b.node({value}, k < 2 ? 100 + rng() % 100 : 1);
    ends.push_back(value);
  }
  b.keep(b.node(ends, 2500));
  OrderSolution solution = solveChecked(b.problem);
  EXPECT_LE(solution.peakBytes, 2500 * 2 + 10 + 400);
  EXPECT_EQ(orderNodes(b.problem).order, solution.order);
}

TEST(Order, SimulatorRefusesWrongOrders) {
  Builder b;
  int32_t x = b.node({b.input(1)}, 1);
  b.node({x}, 1);
  std::string error;
  EXPECT_EQ(simulatePeak(b.problem, {1, 0}, error), -1);
  EXPECT_EQ(error, "node 1 runs before node 0, which it needs");
  EXPECT_EQ(simulatePeak(b.problem, {0}, error), -1);
  EXPECT_EQ(error, "the order has 1 nodes, expected 2");
  EXPECT_EQ(simulatePeak(b.problem, {0, 0}, error), -1);
  EXPECT_EQ(error,
            "place 1 of the order names node 0, which does not exist or came before");
}

TEST(Order, RefusesMalformedProblems) {
  Builder b;
  int32_t x = b.node({b.input(1)}, 1);
  OrderProblem problem = b.problem;
  problem.nodes[0].inputs = {x};
  EXPECT_EQ(orderNodes(problem).error,
            "node 0 reads value 1, which nothing before it in program order produces");
  problem = b.problem;
  problem.nodes[0].inputs = {9};
  EXPECT_EQ(orderNodes(problem).error, "node 0 names the value 9 of 2");
  problem = b.problem;
  problem.nodes[0].after = {0};
  EXPECT_EQ(orderNodes(problem).error,
            "node 0 must come after node 0, which is not before it in program order");
  problem = b.problem;
  problem.nodes[0].inPlace = {{x, x}};
  EXPECT_EQ(orderNodes(problem).error,
            "node 0 has an in-place pair that is not of its inputs and outputs");
}

} // namespace
