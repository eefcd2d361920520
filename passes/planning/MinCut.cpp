#include "passes/planning/MinCut.h"

#include <algorithm>

namespace sluice {

int32_t MinCut::addArc(int32_t from, int32_t to, int64_t capacity) {
  arcs.push_back({to, firstArc[from], 0});
  firstArc[from] = int32_t(arcs.size()) - 1;
  arcs.push_back({from, firstArc[to], 0});
  firstArc[to] = int32_t(arcs.size()) - 1;
  capacities.push_back(capacity);
  return int32_t(capacities.size()) - 1;
}

bool MinCut::levelNodes(int32_t source, int32_t sink) {
  std::fill(level.begin(), level.end(), -1);
  queue.assign(1, source);
  level[source] = 0;
  for (size_t head = 0; head < queue.size(); ++head) {
    int32_t node = queue[head];
    for (int32_t a = firstArc[node]; a >= 0; a = arcs[a].next)
      if (arcs[a].rest > 0 && level[arcs[a].to] < 0) {
        level[arcs[a].to] = level[node] + 1;
        queue.push_back(arcs[a].to);
      }
  }
  return level[sink] >= 0;
}

/// One path of the level graph; 0 when there is none left. Arcs that lead nowhere are
/// passed once per phase.
int64_t MinCut::augment(int32_t source, int32_t sink) {
  path.clear();
  int32_t node = source;
  while (node != sink) {
    int32_t &a = nextArc[node];
    while (a >= 0 && !(arcs[a].rest > 0 && level[arcs[a].to] == level[node] + 1))
      a = arcs[a].next;
    if (a >= 0) {
      path.push_back(a);
      node = arcs[a].to;
      continue;
    }
    if (path.empty())
      return 0;
    int32_t back = path.back();
    path.pop_back();
    node = arcs[back ^ 1].to;
    nextArc[node] = arcs[back].next;
  }
  int64_t amount = INT64_MAX;
  for (int32_t a : path)
    amount = std::min(amount, arcs[a].rest);
  for (int32_t a : path) {
    arcs[a].rest -= amount;
    arcs[a ^ 1].rest += amount;
  }
  return amount;
}

int64_t MinCut::solve(int32_t source, int32_t sink) {
  for (size_t i = 0; i < capacities.size(); ++i) {
    arcs[2 * i].rest = capacities[i];
    arcs[2 * i + 1].rest = 0;
  }
  level.resize(firstArc.size());
  int64_t total = 0;
  while (levelNodes(source, sink)) {
    nextArc = firstArc;
    while (int64_t amount = augment(source, sink)) {
      total += amount;
      if (total >= infinite)
        return total; // no finite cut; the sides are not meaningful
    }
  }
  return total;
}

} // namespace sluice
