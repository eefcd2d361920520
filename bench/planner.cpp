// Planner time on one core: recompute frontiers, order and placement of large steps, and
// the problems of minimalloc. Prints `case metric value` lines; bench/planner.sh makes a
// table of them.

#include "passes/planning/Frontier.h"
#include "passes/planning/Grouping.h"
#include "passes/planning/MemoryPlanner.h"
#include "passes/planning/Order.h"
#include "passes/planning/PlacementChecker.h"
#include "tests/planning/RecomputeSteps.h"

#include <cstdio>
#include <ctime>
#include <fstream>
#include <random>
#include <sstream>

using namespace sluice;

namespace {

class Clock {
public:
  double seconds() const { return double(std::clock() - begin) / CLOCKS_PER_SEC; }

private:
  std::clock_t begin = std::clock();
};

void print(const std::string &name, const char *metric, double value) {
  std::printf("%s %s %.6g\n", name.c_str(), metric, value);
  std::fflush(stdout);
}

/// Seconds of a frontier, and the largest certified gap at 20, 40, 60 and 80% of the room
/// between the smallest plan and keeping everything.
void measureFrontier(const std::string &name, const RecomputeProblem &problem) {
  Clock clock;
  Frontier frontier = Frontier::build(problem);
  print(name, "seconds", clock.seconds());
  print(name, "ops", double(problem.ops.size()));
  int64_t least = frontier.smallestBytes(), most = frontier.members().back().peakBytes;
  double gap = 0;
  for (double share : {0.2, 0.4, 0.6, 0.8}) {
    int64_t budget = least + int64_t(share * double(most - least));
    gap = std::max(
        gap,
        frontier.planForBudget(budget).timeUs / frontier.certificate(budget).boundUs - 1);
  }
  print(name, "gap", gap);
  print(name, "least_ratio", double(least) / double(frontier.structuralMinimumBytes()));
}

/// Blocks of parallel branches that are joined: a forward part, and a backward part that
/// reads what it saved.
RecomputeProblem fanOutStep(int32_t blocks, int32_t branches, int32_t length) {
  std::mt19937 random(1);
  RecomputeProblem problem;
  std::vector<std::pair<std::vector<int32_t>, int32_t>> forward; // reads, writes
  auto value = [&](int64_t bytes, bool preexisting = false) {
    problem.values.push_back({bytes, preexisting, false, false});
    return int32_t(problem.values.size()) - 1;
  };
  auto run = [&](std::vector<int32_t> reads, int32_t write, bool backward) {
    double us = 5 + double(random() % 40);
    problem.ops.push_back({us, std::move(reads), {write}, 0, backward, !backward, -1});
  };
  int32_t x = value(1 << 20, true);
  for (int32_t b = 0; b < blocks; ++b) {
    std::vector<int32_t> ends;
    for (int32_t i = 0; i < branches; ++i) {
      int32_t y = x;
      for (int32_t k = 0; k < length; ++k) {
        int32_t next = value((1 + int64_t(random() % 16)) << 14);
        forward.push_back({{y}, next});
        run({y}, next, false);
        y = next;
      }
      ends.push_back(y);
    }
    x = value(1 << 20);
    forward.push_back({ends, x});
    run(ends, x, false);
  }
  std::vector<int32_t> gradient(problem.values.size(), -1);
  gradient[x] = value(1 << 20);
  run({x}, gradient[x], true);
  for (auto at = forward.rbegin(); at != forward.rend(); ++at)
    for (int32_t read : at->first) {
      std::vector<int32_t> reads{read, gradient[at->second]};
      if (gradient[read] >= 0)
        reads.push_back(gradient[read]); // what other readers have added
      int32_t sum = value(problem.values[read].sizeBytes);
      run(reads, sum, true);
      gradient[read] = sum;
    }
  return problem;
}

/// The same step for the planners of order and of placement.
void measureOrder(const std::string &name, const RecomputeProblem &step) {
  OrderProblem order;
  for (const auto &value : step.values)
    order.values.push_back({value.sizeBytes, value.preexisting, value.liveAtEnd});
  for (const auto &op : step.ops)
    order.nodes.push_back({op.inputs, op.outputs, op.workspaceBytes, {}, {}});
  Clock clock;
  OrderSolution solution = orderNodes(order);
  print(name + "-order", "seconds", clock.seconds());
  print(name + "-order", "program_ratio",
        double(solution.programPeakBytes) / double(solution.peakBytes));
  std::vector<int64_t> first(step.values.size(), -1), last(step.values.size(), -1);
  for (size_t i = 0; i < solution.order.size(); ++i) {
    const auto &op = step.ops[solution.order[i]];
    for (const auto *list : {&op.inputs, &op.outputs})
      for (int32_t v : *list) {
        first[v] = first[v] < 0 ? int64_t(i) : first[v];
        last[v] = int64_t(i);
      }
  }
  PlacementProblem placement;
  for (size_t v = 0; v < first.size(); ++v)
    if (first[v] >= 0)
      placement.buffers.push_back({step.values[v].preexisting ? 0 : first[v],
                                   last[v] + 1,
                                   step.values[v].sizeBytes,
                                   64,
                                   {}});
  Clock placing;
  PlacementSolution placed = placeBuffers(placement);
  print(name + "-placement", "seconds", placing.seconds());
  print(name + "-placement", "gap", placed.gap());
}

/// Groups of a Transformer's forward graph of `layers` times 23 operations, between an
/// embedding and a head.
void measureGrouping(const std::string &name, int32_t layers) {
  GroupingProblem problem;
  auto value = [&](int64_t bytes) {
    problem.values.push_back({bytes, true});
    return int32_t(problem.values.size()) - 1;
  };
  auto parameter = [&](int64_t bytes) {
    problem.parameters.push_back({bytes, bytes < 100'000});
    return int32_t(problem.parameters.size()) - 1;
  };
  auto run = [&](std::vector<int32_t> reads, std::vector<int32_t> parameters) {
    int32_t out = value(1 << 20);
    double us = parameters.empty() ? 20 : 400;
    problem.nodes.push_back({us, std::move(reads), {out}, std::move(parameters)});
    return out;
  };
  int32_t x = run({value(1 << 10)}, {parameter(150 << 20)});
  for (int32_t layer = 0; layer < layers; ++layer)
    for (int part = 0; part < 2; ++part) { // attention and mlp, beside the residual
      int32_t y = run({x}, {parameter(4096)});
      std::vector<int32_t> branches;
      for (int branch = 0; branch < (part == 0 ? 3 : 1); ++branch)
        branches.push_back(run({run({y}, {parameter(16 << 20)})}, {parameter(4096)}));
      for (int op = 0; op < (part == 0 ? 4 : 3); ++op)
        branches.assign(1, run(branches, {}));
      x = run({x, run({run(branches, {parameter(16 << 20)})}, {})}, {});
    }
  run({x}, {parameter(150 << 20)});
  problem.groupSize = 8;
  Clock clock;
  Grouping grouping = groupByTopology(problem);
  print(name, "seconds", clock.seconds());
  print(name, "ops", double(problem.nodes.size()));
  print(name, "groups", double(grouping.groups.size()));
  print(name, "imbalance", grouping.imbalance);
  print(name, "least_imbalance", grouping.leastImbalance);
}

void measureMiniMalloc(const std::string &folder) {
  double total = 0;
  int solved = 0, count = 0;
  for (char letter = 'A'; letter <= 'K'; ++letter) {
    std::ifstream file(folder + "/" + letter + ".1048576.csv");
    PlacementProblem problem;
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream row(line);
      int64_t id, begin, end, size;
      char comma;
      row >> id >> comma >> begin >> comma >> end >> comma >> size;
      problem.buffers.push_back({begin, end, size, 64, {}});
    }
    if (problem.buffers.empty())
      continue;
    problem.capacityBytes = 1'048'576;
    problem.nodeBudget = 400'000;
    Clock clock;
    PlacementSolution solution = placeBuffers(problem);
    total += clock.seconds();
    solved += solution.fits && checkPlacement(problem, solution).empty();
    ++count;
  }
  if (count == 0) {
    std::fprintf(stderr, "no minimalloc problems in '%s'\n", folder.c_str());
    return;
  }
  print("minimalloc", "seconds", total);
  print("minimalloc", "solved", solved);
}

} // namespace

/// planner [FOLDER of minimalloc's problems]
int main(int count, char **arguments) {
  using sluice::testing::decoderStep;
  measureGrouping("grouping-3000", 130);
  measureFrontier("decoder-12", decoderStep({12, 768, 12, 8, 1024}));
  measureFrontier("decoder-48", decoderStep({48, 1600, 25, 8, 1024}));
  measureFrontier("decoder-96", decoderStep({96, 12288, 96, 1, 2048}));
  measureFrontier("decoder-3000", decoderStep({111, 4096, 32, 1, 2048}));
  measureFrontier("resnet50", sluice::testing::resnet50Step(64));
  measureFrontier("mobilenet", sluice::testing::mobilenetStep(64));
  RecomputeProblem fanOut = fanOutStep(12, 100, 4);
  measureFrontier("fan-out-10000", fanOut);
  measureOrder("fan-out-10000", fanOut);
  measureFrontier("fan-out-400-wide", fanOutStep(12, 400, 1));
  measureMiniMalloc(count > 1 ? arguments[1] : "../shared/data/minimalloc");
  return 0;
}
