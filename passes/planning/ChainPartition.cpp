#include "passes/planning/ChainPartition.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>

namespace sluice {

ChainLoads::ChainLoads(const ChainProblem &problem) : bytes(1, 0.0), us(1, 0.0) {
  for (const ChainProblem::Block &block : problem.blocks) {
    bytes.push_back(bytes.back() + static_cast<double>(block.bytes));
    us.push_back(us.back() + block.us);
  }
  equalBytes = bytes.back() / problem.groups;
  equalUs = us.back() / problem.groups;
}

double ChainLoads::of(size_t begin, size_t end) const {
  double ofBytes = equalBytes > 0 ? (bytes[end] - bytes[begin]) / equalBytes : 0;
  double ofTime = equalUs > 0 ? (us[end] - us[begin]) / equalUs : 0;
  return std::max(ofBytes, ofTime);
}

namespace {

std::string checked(const ChainProblem &problem) {
  auto count = static_cast<int64_t>(problem.blocks.size());
  if (problem.groups < 1 || problem.groups > count)
    return "expected 1 to " + std::to_string(count) + " groups of " +
           std::to_string(count) + " blocks, found " + std::to_string(problem.groups);
  for (const ChainProblem::Block &block : problem.blocks)
    if (block.bytes < 0 || block.cutBytes < 0 || !(block.us >= 0) || std::isinf(block.us))
      return "a block has a negative size or time";
  if (!(problem.slack >= 0))
    return "expected a slack of 0 or more";
  return "";
}

/// least(k, i) = min over j of max(least(k - 1, j), load(j, i)): the first rises with j,
/// the second falls, and where they meet only moves forward with i.
double leastLoadOf(const ChainProblem &problem, const ChainLoads &loads) {
  size_t count = problem.blocks.size();
  std::vector<double> before(count + 1), now(count + 1);
  for (size_t i = 0; i <= count; ++i)
    before[i] = loads.of(0, i);
  for (int32_t group = 1; group < problem.groups; ++group) {
    auto first = static_cast<size_t>(group); // so many blocks are taken by earlier groups
    size_t j = first;
    for (size_t i = first + 1; i <= count; ++i) {
      auto with = [&](size_t at) { return std::max(before[at], loads.of(at, i)); };
      while (j + 1 < i && with(j + 1) <= with(j))
        ++j;
      now[i] = with(j);
    }
    before.swap(now);
  }
  return before[count];
}

constexpr int64_t impossible = std::numeric_limits<int64_t>::max();

/// The fewest bytes cut where no group's load passes `most`.
ChainPartition fewestCut(const ChainProblem &problem, const ChainLoads &loads,
                         double most) {
  size_t count = problem.blocks.size();
  auto groups = static_cast<size_t>(problem.groups);
  std::vector<std::vector<int32_t>> from(groups, std::vector<int32_t>(count + 1, 0));
  std::vector<int64_t> before(count + 1, impossible), now(count + 1);
  for (size_t i = 1; i <= count; ++i)
    before[i] = loads.of(0, i) <= most ? 0 : impossible;
  for (size_t group = 1; group < groups; ++group) {
    std::fill(now.begin(), now.end(), impossible);
    std::deque<size_t> window; // begins that may still be the cheapest, prices rising
    auto price = [&](size_t j) { return before[j] + problem.blocks[j - 1].cutBytes; };
    for (size_t i = group + 1; i <= count; ++i) {
      if (size_t j = i - 1; before[j] != impossible) {
        while (!window.empty() && price(window.back()) > price(j))
          window.pop_back();
        window.push_back(j);
      }
      while (!window.empty() && loads.of(window.front(), i) > most)
        window.pop_front();
      if (window.empty())
        continue;
      now[i] = price(window.front());
      from[group][i] = static_cast<int32_t>(window.front());
    }
    before.swap(now);
  }
  ChainPartition partition;
  partition.cutBytes = before[count];
  if (before[count] == impossible)
    return partition;
  partition.begins.assign(groups, 0);
  size_t end = count;
  for (size_t group = groups; group-- > 0;) {
    auto begin = static_cast<size_t>(from[group][end]);
    partition.begins[group] = static_cast<int32_t>(begin);
    partition.load = std::max(partition.load, loads.of(begin, end));
    end = begin;
  }
  return partition;
}

} // namespace

ChainPartition partitionChain(const ChainProblem &problem) {
  ChainPartition best;
  best.error = checked(problem);
  if (!best.error.empty())
    return best;
  ChainLoads loads(problem);
  double least = leastLoadOf(problem, loads);
  best = fewestCut(problem, loads, least * (1 + problem.slack));
  // Fewer bytes are worth the slack, equal ones are not: the least load of so few.
  double low = least;
  if (ChainPartition tight = fewestCut(problem, loads, least);
      tight.cutBytes == best.cutBytes)
    best = tight;
  for (int step = 0; step < 60 && best.load > std::nextafter(low, best.load); ++step) {
    double middle = low + (best.load - low) / 2;
    ChainPartition tried = fewestCut(problem, loads, middle);
    if (tried.cutBytes == best.cutBytes)
      best = tried;
    else
      low = middle;
  }
  best.leastLoad = least;
  return best;
}

} // namespace sluice
