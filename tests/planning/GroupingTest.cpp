// Groups of parameters from the graph.

#include "passes/planning/Grouping.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace sluice {
namespace {

/// Builds graphs whose nodes make one value each.
struct Graph {
  GroupingProblem problem;
  int32_t input(bool carries = true) { return value(8, carries); }
  int32_t value(int64_t bytes, bool carries = true) {
    problem.values.push_back({bytes, carries});
    return static_cast<int32_t>(problem.values.size()) - 1;
  }
  int32_t parameter(int64_t bytes, bool small = false) {
    problem.parameters.push_back({bytes, small});
    return static_cast<int32_t>(problem.parameters.size()) - 1;
  }
  int32_t node(std::vector<int32_t> inputs, std::vector<int32_t> parameters,
               double us = 1, int64_t bytes = 100) {
    int32_t result = value(bytes);
    problem.nodes.push_back({us, std::move(inputs), {result}, std::move(parameters)});
    return result;
  }
};

/// Pre-norm layers of attention and MLP with a mask that all of them read and an
/// embedding that is the head too.
Graph transformer(int layers) {
  Graph graph;
  int32_t ids = graph.input(false), positions = graph.input(false);
  int32_t table = graph.parameter(5000);
  int32_t x = graph.node({ids}, {table});
  int32_t mask = graph.value(10, false);
  graph.problem.nodes.push_back({0, {positions}, {mask}, {}});
  for (int layer = 0; layer < layers; ++layer) {
    int32_t norm = graph.node({x}, {graph.parameter(16, true)});
    int32_t qkv = graph.node({norm}, {graph.parameter(3000)}, 6);
    int32_t bias = graph.node({qkv}, {graph.parameter(48, true)});
    int32_t mixed = graph.node({bias, mask}, {}, 2);
    int32_t out = graph.node({mixed}, {graph.parameter(1000)}, 2);
    x = graph.node({x, out}, {});
    norm = graph.node({x}, {graph.parameter(16, true)});
    int32_t up = graph.node({norm}, {graph.parameter(4000)}, 8);
    int32_t down = graph.node({up}, {graph.parameter(4000)}, 8);
    x = graph.node({x, down}, {});
  }
  graph.node({x}, {table}, 10);
  return graph;
}

void expectAcyclic(const GroupingProblem &problem, const Grouping &grouping) {
  // Owners' groups only: a node without parameters has no group to be seen from outside.
  std::vector<std::set<int32_t>> from(problem.values.size());
  for (const auto &node : problem.nodes) {
    std::set<int32_t> groups;
    for (int32_t value : node.inputs)
      groups.insert(from[value].begin(), from[value].end());
    for (int32_t parameter : node.parameters)
      groups.insert(grouping.groupOf[parameter]);
    for (int32_t value : node.outputs)
      from[value] = groups;
    for (int32_t parameter : node.parameters)
      for (int32_t value : node.inputs)
        for (int32_t group : from[value])
          EXPECT_GE(group, grouping.groupOf[parameter]);
  }
}

TEST(Grouping, LayersOfATransformerAreBlocks) {
  Graph graph = transformer(8);
  graph.problem.groupSize = 4;
  Grouping grouping = groupByTopology(graph.problem);
  ASSERT_EQ(grouping.error, "");
  EXPECT_TRUE(grouping.chain);
  EXPECT_EQ(grouping.blocks, 17); // the embedding, attention and MLP of 8 layers
  EXPECT_EQ(grouping.groups.size(), 5u);
  EXPECT_EQ(grouping.cutValues, 4); // the residual stream and nothing else
  EXPECT_EQ(grouping.cutBytes, 400);
  EXPECT_LE(grouping.imbalance, 1.25);
  EXPECT_GE(grouping.imbalance, grouping.leastImbalance);
  EXPECT_LE(grouping.imbalance, 1.05 * grouping.leastImbalance);
}

TEST(Grouping, TiedParametersAreWithTheLastGradient) {
  Graph graph = transformer(4);
  graph.problem.groups = 3;
  Grouping grouping = groupByTopology(graph.problem);
  ASSERT_EQ(grouping.error, "");
  EXPECT_EQ(grouping.groupOf[0],
            2); // the embedding, though the head reads it first in backward
  EXPECT_EQ(grouping.groupOf.back(), 0);
  EXPECT_TRUE(std::is_sorted(grouping.groupOf.rbegin(), grouping.groupOf.rend()));
  int64_t bytes = 0;
  for (const auto &group : grouping.groups)
    bytes += group.bytes;
  int64_t all = 0;
  for (const auto &parameter : graph.problem.parameters)
    all += parameter.bytes;
  EXPECT_EQ(bytes, all); // each once
}

TEST(Grouping, SmallParametersNeverStandAlone) {
  Graph graph;
  int32_t x = graph.input();
  for (int layer = 0; layer < 3; ++layer) {
    x = graph.node({x}, {graph.parameter(100)});
    x = graph.node({x}, {graph.parameter(4, true)});
    x = graph.node({x}, {});
  }
  graph.problem.groups = 3;
  Grouping grouping = groupByTopology(graph.problem);
  ASSERT_EQ(grouping.error, "");
  EXPECT_EQ(grouping.blocks, 3);
  EXPECT_EQ(grouping.groupOf, (std::vector<int32_t>{2, 2, 1, 1, 0, 0}));
}

/// Two towers that meet at the end: no single tensor separates their layers.
Graph towers(std::mt19937 &random, int layers) {
  Graph graph;
  int32_t x = graph.input(), y = graph.input();
  for (int layer = 0; layer < layers; ++layer) {
    auto size = static_cast<int64_t>(100 + random() % 400);
    x = graph.node({x}, {graph.parameter(size)}, 1 + random() % 5,
                   static_cast<int64_t>(10 + random() % 300));
    y = graph.node({y}, {graph.parameter(size)}, 1 + random() % 5,
                   static_cast<int64_t>(10 + random() % 300));
    if (random() % 3 == 0)
      y = graph.node({x, y}, {});
  }
  graph.node({x, y}, {});
  return graph;
}

TEST(Grouping, WithoutAChainTheQuotientIsAcyclic) {
  std::mt19937 random(3);
  int withoutChain = 0;
  for (int trial = 0; trial < 60; ++trial) {
    Graph graph = towers(random, 3 + trial % 9);
    graph.problem.groups = 2 + trial % 4;
    Grouping grouping = groupByTopology(graph.problem);
    ASSERT_EQ(grouping.error, "");
    withoutChain += !grouping.chain;
    for (int32_t group : grouping.groupOf)
      ASSERT_GE(group, 0);
    for (const auto &group : grouping.groups)
      EXPECT_GT(group.bytes, 0);
    expectAcyclic(graph.problem, grouping);
  }
  EXPECT_GT(withoutChain, 30);
}

TEST(Grouping, RefinementCutsFewerBytes) {
  // a large value goes from a to c, behind an unrelated node: cutting by order alone cuts
  // it
  Graph graph;
  int32_t in = graph.input(), other = graph.input();
  int32_t a = graph.node({in}, {graph.parameter(100)}, 1, 10000);
  int32_t b = graph.node({other}, {graph.parameter(100)}, 1, 1);
  int32_t c = graph.node({a}, {}, 0, 1); // narrow
  int32_t d = graph.node({b}, {graph.parameter(100)}, 1, 1);
  graph.node({c, d}, {graph.parameter(100)}, 1, 1);
  graph.problem.groups = 2;
  Grouping grouping = groupByTopology(graph.problem);
  ASSERT_EQ(grouping.error, "");
  EXPECT_EQ(grouping.groupOf, (std::vector<int32_t>{1, 1, 0, 0}));
  EXPECT_EQ(grouping.cutBytes, 2);
}

TEST(Grouping, IsTheSameEveryTime) {
  std::mt19937 one(5), two(5);
  Graph first = towers(one, 40), second = towers(two, 40);
  first.problem.groupSize = second.problem.groupSize = 7;
  EXPECT_EQ(groupByTopology(first.problem).groupOf,
            groupByTopology(second.problem).groupOf);
}

TEST(Grouping, SaysWhatIsTooMuch) {
  Graph graph = transformer(2);
  graph.problem.groupSize = 6;
  EXPECT_EQ(
      groupByTopology(graph.problem).error,
      "a group of 6 blocks is more than the 5 blocks of the model; ask for 5 at most");
  graph.problem.groupSize = 0;
  graph.problem.groups = 40;
  EXPECT_NE(groupByTopology(graph.problem).error.find("40 groups"), std::string::npos);
  graph.problem.groups = 2;
  std::swap(graph.problem.nodes[3], graph.problem.nodes[2]);
  EXPECT_EQ(groupByTopology(graph.problem).error,
            "the nodes are not in a topological order");
}

} // namespace
} // namespace sluice
