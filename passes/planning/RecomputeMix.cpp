// Choices between two neighbors of the hull: the price alone flips all equal layers
// together, so the difference is taken apart into connected components, one per layer.

#include "passes/planning/RecomputeCut.h"

#include <algorithm>
#include <numeric>

namespace sluice {
namespace {

class DisjointSets {
public:
  explicit DisjointSets(size_t count) : parent(count) {
    std::iota(parent.begin(), parent.end(), 0);
  }
  int32_t find(int32_t x) {
    while (parent[x] != x)
      x = parent[x] = parent[parent[x]];
    return x;
  }
  void join(int32_t a, int32_t b) { parent[find(a)] = find(b); }

private:
  std::vector<int32_t> parent;
};

struct Component {
  int64_t bytes = 0;
  int32_t position = -1; // of its last operation
  int32_t set = -1;
};

} // namespace

std::vector<char> RecomputeCut::mix(const Bracket &at, int64_t residentBytes,
                                    bool lateFirst) const {
  const std::vector<char> &lean = at.lean->sourceSide, &rich = at.rich->sourceSide;
  DisjointSets sets(lean.size());
  auto differs = [&](int32_t node) { return lean[node] != rich[node]; };
  auto link = [&](int32_t a, int32_t b) {
    if (differs(a) && differs(b))
      sets.join(a, b);
  };
  for (int32_t v : values)
    link(valueNode[v], opNode[graph.producer[v]]);
  for (const InputArc &arc : inputArcs)
    link(opNode[arc.op], valueNode[arc.value]);

  std::vector<int32_t> componentOf(lean.size(), -1);
  std::vector<Component> components;
  for (int32_t v : values) {
    int32_t node = valueNode[v], o = graph.producer[v];
    if (!differs(node) && !differs(opNode[o]))
      continue;
    int32_t set = sets.find(differs(node) ? node : opNode[o]);
    if (componentOf[set] < 0) {
      componentOf[set] = int32_t(components.size());
      components.push_back({0, -1, set});
    }
    Component &component = components[componentOf[set]];
    component.bytes += bytesOf(v, rich) - bytesOf(v, lean);
    component.position = std::max(component.position, o);
  }
  std::sort(
      components.begin(), components.end(), [&](const Component &a, const Component &b) {
        return lateFirst ? std::pair(a.position, a.set) > std::pair(b.position, b.set)
                         : std::pair(a.position, a.set) < std::pair(b.position, b.set);
      });
  Choice mixed{0, at.lean->bytes, lean};
  std::vector<char> taken(lean.size(), 0);
  for (const Component &component : components)
    if (mixed.bytes + component.bytes <= residentBytes) {
      mixed.bytes += component.bytes;
      taken[component.set] = 1;
    }
  for (size_t node = 0; node < lean.size(); ++node)
    if (differs(int32_t(node)) && taken[sets.find(int32_t(node))])
      mixed.sourceSide[node] = rich[node];
  return keptBy(mixed);
}

} // namespace sluice
