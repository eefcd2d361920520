#include "passes/planning/Grouping.h"

#include "passes/planning/ChainPartition.h"
#include "passes/planning/GroupLabels.h"

#include <algorithm>

namespace sluice {
namespace {

using Problem = GroupingProblem;

std::string checked(const Problem &problem) {
  if ((problem.groupSize > 0) == (problem.groups > 0))
    return "expected a size of groups or their number";
  std::vector<int32_t> producer(problem.values.size(), -1);
  auto inRange = [](int32_t index, size_t size) {
    return index >= 0 && static_cast<size_t>(index) < size;
  };
  std::vector<bool> made(problem.values.size(), false),
      read(problem.values.size(), false);
  for (const Problem::Node &node : problem.nodes) {
    for (int32_t value : node.inputs)
      if (!inRange(value, problem.values.size()))
        return "a node reads a value that is not there";
      else
        read[value] = true;
    for (int32_t value : node.outputs)
      if (!inRange(value, problem.values.size()) || made[value])
        return "a value has no place or two producers";
      else if (read[value])
        return "the nodes are not in a topological order";
      else
        made[value] = true;
    for (int32_t parameter : node.parameters)
      if (!inRange(parameter, problem.parameters.size()))
        return "a node reads a parameter that is not there";
  }
  return "";
}

/// Per node n: bytes and number of the connecting values made at or before n and read
/// behind it.
struct Crossings {
  std::vector<int64_t> bytes;
  std::vector<int32_t> values;
};

Crossings crossingsOf(const Topology &topology) {
  size_t count = topology.problem.nodes.size();
  Crossings crossings{std::vector<int64_t>(count, 0), std::vector<int32_t>(count, 0)};
  std::vector<int64_t> bytes(count + 1, 0);
  std::vector<int32_t> values(count + 1, 0);
  for (size_t value = 0; value < topology.producer.size(); ++value) {
    if (!topology.connects(value))
      continue;
    int32_t from = topology.producer[value], to = topology.readers[value].back();
    bytes[from] += topology.problem.values[value].bytes;
    bytes[to] -= topology.problem.values[value].bytes;
    ++values[from];
    --values[to];
  }
  for (size_t n = 0; n < count; ++n) {
    crossings.bytes[n] = bytes[n] + (n ? crossings.bytes[n - 1] : 0);
    crossings.values[n] = values[n] + (n ? crossings.values[n - 1] : 0);
  }
  return crossings;
}

/// Blocks as the index of their last node. A block without a parameter of its own, or
/// with small ones only, joins the block before it; the first such ones join the block
/// behind.
std::vector<int32_t> blocksOf(const Topology &topology, const Crossings &crossings) {
  size_t count = topology.problem.nodes.size();
  std::vector<int32_t> large(count, 0);
  for (size_t parameter = 0; parameter < topology.owner.size(); ++parameter)
    if (topology.owner[parameter] >= 0 && !topology.problem.parameters[parameter].small)
      ++large[topology.owner[parameter]];
  std::vector<int32_t> ends;
  int32_t inBlock = 0;
  for (size_t n = 0; n < count; ++n) {
    inBlock += large[n];
    bool cut = n + 1 == count || crossings.values[n] == 1;
    if (!cut)
      continue;
    auto end = static_cast<int32_t>(n);
    if (inBlock == 0 && !ends.empty())
      ends.back() = end;
    else if (inBlock > 0)
      ends.push_back(end);
    inBlock = 0;
  }
  return ends;
}

/// Nodes in a topological order, cut behind `ends`, as a chain.
ChainProblem chainOf(const Topology &topology, const Crossings &crossings,
                     const std::vector<int32_t> &ends, int32_t groups) {
  ChainProblem chain;
  chain.groups = groups;
  chain.slack = topology.problem.slack;
  chain.blocks.resize(ends.size());
  std::vector<int32_t> blockOf(topology.problem.nodes.size(), 0);
  size_t block = 0;
  for (size_t n = 0; n < blockOf.size(); ++n) {
    blockOf[n] = static_cast<int32_t>(block);
    chain.blocks[block].us += topology.problem.nodes[n].backwardUs;
    if (static_cast<int32_t>(n) == ends[block])
      chain.blocks[block++].cutBytes = crossings.bytes[n];
  }
  for (size_t parameter = 0; parameter < topology.owner.size(); ++parameter)
    if (int32_t node = topology.owner[parameter]; node >= 0)
      chain.blocks[blockOf[node]].bytes += topology.problem.parameters[parameter].bytes;
  return chain;
}

void describe(Grouping &grouping, const Topology &topology, const GroupLabels &labels,
              int32_t groups) {
  const Problem &problem = topology.problem;
  auto numbered = [&](size_t node) { return groups - 1 - labels.of(node); };
  grouping.groups.resize(groups);
  grouping.groupOf.assign(problem.parameters.size(), -1);
  for (size_t p = 0; p < problem.parameters.size(); ++p)
    if (topology.owner[p] >= 0) {
      grouping.groupOf[p] = numbered(topology.owner[p]);
      grouping.groups[grouping.groupOf[p]].bytes += problem.parameters[p].bytes;
    }
  for (size_t n = 0; n < problem.nodes.size(); ++n)
    grouping.groups[numbered(n)].us += problem.nodes[n].backwardUs;
  for (size_t value = 0; value < problem.values.size(); ++value)
    if (topology.connects(value)) {
      int64_t cut = labels.cut(value);
      grouping.cutBytes += cut;
      grouping.cutValues += cut > 0;
      grouping.allBytes += problem.values[value].bytes;
    }
  grouping.imbalance = labels.greatestLoad();
}

/// Labels of nodes by the block they are in and the group that block is in.
std::vector<int32_t> spread(const std::vector<int32_t> &ends, const ChainPartition &cut,
                            size_t nodes) {
  std::vector<int32_t> label(nodes, 0);
  size_t block = 0, group = 0;
  for (size_t n = 0; n < nodes; ++n) {
    while (group + 1 < cut.begins.size() &&
           static_cast<int32_t>(block) >= cut.begins[group + 1])
      ++group;
    label[n] = static_cast<int32_t>(group);
    if (static_cast<int32_t>(n) == ends[block] && block + 1 < ends.size())
      ++block;
  }
  return label;
}

/// Without a chain: a unit ends with each node that has parameters.
std::vector<int32_t> unitsOf(const Topology &topology) {
  size_t count = topology.problem.nodes.size();
  std::vector<bool> owns(count, false);
  for (size_t p = 0; p < topology.owner.size(); ++p)
    if (topology.owner[p] >= 0 && !topology.problem.parameters[p].small)
      owns[topology.owner[p]] = true;
  std::vector<int32_t> ends;
  for (size_t n = 0; n < count; ++n)
    if (owns[n])
      ends.push_back(static_cast<int32_t>(n));
  if (!ends.empty())
    ends.back() = static_cast<int32_t>(count) - 1;
  return ends;
}

/// A cut of the nodes in order, behind some of `ends`.
struct Candidate {
  std::vector<int32_t> ends;
  ChainPartition cut;
};

Candidate candidateOf(const Topology &topology, const Crossings &crossings,
                      std::vector<int32_t> ends, int32_t groups) {
  ChainPartition cut = partitionChain(chainOf(topology, crossings, ends, groups));
  return {std::move(ends), std::move(cut)};
}

int32_t groupsOf(const Problem &problem, size_t blocks) {
  auto count = static_cast<int32_t>(blocks);
  return problem.groups > 0 ? problem.groups
                            : (count + problem.groupSize - 1) / problem.groupSize;
}

std::string tooMuch(const Problem &problem, int32_t blocks) {
  std::string asked = problem.groupSize > 0
                          ? "a group of " + std::to_string(problem.groupSize) + " blocks"
                          : std::to_string(problem.groups) + " groups";
  return asked + " is more than the " + std::to_string(blocks) +
         " blocks of the model; ask for " + std::to_string(blocks) + " at most";
}

/// So much worse may the balance of a chain be than that of single nodes: what connects
/// groups of a chain is one tensor.
constexpr double worthOfChain = 1.25;

} // namespace

Grouping groupByTopology(const GroupingProblem &problem) {
  Grouping grouping;
  grouping.error = checked(problem);
  if (!grouping.error.empty())
    return grouping;
  Topology topology(problem);
  Crossings crossings = crossingsOf(topology);
  std::vector<int32_t> blocks = blocksOf(topology, crossings), units = unitsOf(topology);
  bool chain =
      blocks.size() >= 2 && problem.groups <= static_cast<int32_t>(blocks.size());
  grouping.blocks = static_cast<int32_t>((chain ? blocks : units).size());
  if (std::max(problem.groups, problem.groupSize) > grouping.blocks) {
    grouping.error = tooMuch(problem, grouping.blocks);
    return grouping;
  }
  int32_t groups = groupsOf(problem, grouping.blocks);
  Candidate best = candidateOf(topology, crossings, chain ? blocks : units, groups);
  if (chain && groups <= static_cast<int32_t>(units.size())) {
    Candidate finer = candidateOf(topology, crossings, units, groups);
    if (best.cut.load > worthOfChain * finer.cut.load) {
      best = std::move(finer);
      chain = false;
      grouping.blocks = static_cast<int32_t>(units.size());
    }
  }
  const ChainPartition &cut = best.cut;
  GroupLabels labels(topology, spread(best.ends, cut, problem.nodes.size()), groups);
  if (!chain)
    labels.refine(std::max(cut.load, cut.leastLoad * (1 + problem.slack)));
  grouping.chain = chain;
  grouping.leastImbalance = cut.leastLoad;
  describe(grouping, topology, labels, groups);
  for (size_t g = 0; g < cut.begins.size(); ++g) {
    size_t end = g + 1 < cut.begins.size() ? cut.begins[g + 1] : best.ends.size();
    grouping.groups[groups - 1 - g].blocks = static_cast<int32_t>(end) - cut.begins[g];
  }
  return grouping;
}

} // namespace sluice
