#pragma once
// What the steps of grouping share: who makes and reads each value, and labels of nodes
// that rise along every edge with what they cost.

#include "passes/planning/Grouping.h"

namespace sluice {

/// What the steps share: who makes and reads a value, and which node owns a parameter.
struct Topology {
  const GroupingProblem &problem;
  std::vector<int32_t> producer;             ///< per value, or -1
  std::vector<std::vector<int32_t>> readers; ///< per value, ascending, each once
  std::vector<int32_t> owner; ///< per parameter: the first node that reads it

  explicit Topology(const GroupingProblem &given)
      : problem(given), producer(given.values.size(), -1), readers(given.values.size()),
        owner(given.parameters.size(), -1) {
    for (size_t n = 0; n < problem.nodes.size(); ++n) {
      auto node = static_cast<int32_t>(n);
      for (int32_t value : problem.nodes[n].outputs)
        producer[value] = node;
      for (int32_t value : problem.nodes[n].inputs)
        if (readers[value].empty() || readers[value].back() != node)
          readers[value].push_back(node);
      for (int32_t parameter : problem.nodes[n].parameters)
        if (owner[parameter] < 0)
          owner[parameter] = node;
    }
  }

  /// Values that a cut can separate: made and read by nodes, with a gradient.
  bool connects(size_t value) const {
    return problem.values[value].carriesGradient && producer[value] >= 0 &&
           !readers[value].empty();
  }
};

/// Labels of nodes, rising along every edge, and what they cost.
class GroupLabels {
public:
  GroupLabels(const Topology &topology, std::vector<int32_t> given, int32_t groups);

  int32_t of(size_t node) const { return label[node]; }
  double load(size_t group) const; ///< as ChainPartition::load
  double greatestLoad() const;
  /// Bytes of a value once for each other group that reads it.
  int64_t cut(size_t value) const;

  /// Moves single nodes over the boundary of neighbouring groups while that cuts fewer
  /// bytes and no load passes `most` (after Fiduccia and Mattheyses, no uphill moves).
  void refine(double most);

private:
  int64_t cutAround(size_t node) const;
  bool keepsOrder(size_t node, int32_t to) const;
  bool isLastOwner(size_t node) const;
  void move(size_t node, int32_t to);
  bool improves(size_t node, int32_t to, double most);

  const Topology &topology;
  std::vector<int32_t> label;
  std::vector<int64_t> bytes; ///< per group, of parameters
  std::vector<double> us;     ///< per group, of the backward part
  std::vector<int64_t> owned; ///< per node, bytes of parameters
  int64_t allBytes = 0;
  double allUs = 0;
};

} // namespace sluice
