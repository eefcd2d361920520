#include "passes/planning/GroupLabels.h"

#include <algorithm>
#include <set>

namespace sluice {

GroupLabels::GroupLabels(const Topology &given, std::vector<int32_t> labels,
                         int32_t groups)
    : topology(given), label(std::move(labels)), bytes(groups, 0), us(groups, 0),
      owned(label.size(), 0) {
  for (size_t p = 0; p < topology.owner.size(); ++p)
    if (topology.owner[p] >= 0)
      owned[topology.owner[p]] += topology.problem.parameters[p].bytes;
  for (size_t n = 0; n < label.size(); ++n) {
    bytes[label[n]] += owned[n];
    us[label[n]] += topology.problem.nodes[n].backwardUs;
    allBytes += owned[n];
    allUs += topology.problem.nodes[n].backwardUs;
  }
}

double GroupLabels::load(size_t group) const {
  auto groups = static_cast<double>(bytes.size());
  double ofBytes = allBytes > 0 ? static_cast<double>(bytes[group]) * groups /
                                      static_cast<double>(allBytes)
                                : 0;
  return std::max(ofBytes, allUs > 0 ? us[group] * groups / allUs : 0);
}

double GroupLabels::greatestLoad() const {
  double most = 0;
  for (size_t group = 0; group < bytes.size(); ++group)
    most = std::max(most, load(group));
  return most;
}

int64_t GroupLabels::cut(size_t value) const {
  std::set<int32_t> groups;
  for (int32_t reader : topology.readers[value])
    groups.insert(label[reader]);
  groups.erase(label[topology.producer[value]]);
  return topology.problem.values[value].bytes * static_cast<int64_t>(groups.size());
}

int64_t GroupLabels::cutAround(size_t node) const {
  std::set<int32_t> values;
  const GroupingProblem::Node &at = topology.problem.nodes[node];
  for (const std::vector<int32_t> *list : {&at.inputs, &at.outputs})
    for (int32_t value : *list)
      if (topology.connects(value))
        values.insert(value);
  int64_t sum = 0;
  for (int32_t value : values)
    sum += cut(value);
  return sum;
}

/// Whether labels still rise along every edge at `node` when it has label `to`. Values
/// without a gradient count too: the quotient of the whole graph is acyclic.
bool GroupLabels::keepsOrder(size_t node, int32_t to) const {
  for (int32_t value : topology.problem.nodes[node].inputs)
    if (int32_t from = topology.producer[value]; from >= 0 && label[from] > to)
      return false;
  for (int32_t value : topology.problem.nodes[node].outputs)
    for (int32_t reader : topology.readers[value])
      if (label[reader] < to)
        return false;
  return true;
}

/// Whether its group has no parameters without `node`.
bool GroupLabels::isLastOwner(size_t node) const {
  return owned[node] > 0 && bytes[label[node]] == owned[node];
}

void GroupLabels::move(size_t node, int32_t to) {
  double time = topology.problem.nodes[node].backwardUs;
  bytes[label[node]] -= owned[node];
  us[label[node]] -= time;
  label[node] = to;
  bytes[to] += owned[node];
  us[to] += time;
}

bool GroupLabels::improves(size_t node, int32_t to, double most) {
  if (to < 0 || to >= static_cast<int32_t>(bytes.size()) || !keepsOrder(node, to) ||
      isLastOwner(node))
    return false;
  int32_t from = label[node];
  int64_t before = cutAround(node);
  move(node, to);
  if (cutAround(node) < before && load(to) <= most)
    return true;
  move(node, from);
  return false;
}

void GroupLabels::refine(double most) {
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t node = 0; node < label.size(); ++node)
      moved |=
          improves(node, label[node] - 1, most) || improves(node, label[node] + 1, most);
  }
}

} // namespace sluice
