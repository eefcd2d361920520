#pragma once
// Minimum cut between two nodes of a network with integer capacities.

#include <cstdint>
#include <vector>

namespace sluice {

/// Dinic's algorithm (1970): blocking flows in level graphs. Capacities may be changed
/// between solutions. Deterministic.
class MinCut {
public:
  static constexpr int64_t infinite = int64_t(1) << 60;

  explicit MinCut(int32_t nodes) : firstArc(nodes, -1) {}

  /// Returns the arc's index for setCapacity and flow.
  int32_t addArc(int32_t from, int32_t to, int64_t capacity);
  void setCapacity(int32_t arc, int64_t capacity) { capacities[arc] = capacity; }

  /// Value of the cut; `infinite` or more if there is none of finite value.
  int64_t solve(int32_t source, int32_t sink);
  int64_t flow(int32_t arc) const { return arcs[2 * arc + 1].rest; }
  /// After solve: the smallest source side of all minimum cuts.
  bool onSourceSide(int32_t node) const { return level[node] >= 0; }

private:
  struct Arc {
    int32_t to, next;
    int64_t rest; // capacity not used; of the reverse arc: the flow
  };
  bool levelNodes(int32_t source, int32_t sink);
  int64_t augment(int32_t source, int32_t sink);

  std::vector<int32_t> firstArc;
  std::vector<Arc> arcs; // arc i and its reverse are 2i and 2i+1
  std::vector<int64_t> capacities;
  std::vector<int32_t> level, nextArc, queue, path;
};

} // namespace sluice
