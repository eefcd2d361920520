#include "passes/planning/Order.h"

#include "passes/planning/OrderGraph.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

namespace sluice {
namespace {

enum class Policy {
  Eager, ///< program order, but whatever frees runs at once: updates follow their
         ///< gradient
  Lean,  ///< smallest growth first
  Liu,   ///< rule of J. W. H. Liu (1987), exact for trees: shrinking ones by rising hill,
         ///< then growing ones by falling drop behind the hill
  Deepest, ///< continue what was begun last
};
constexpr std::pair<Policy, const char *> policies[] = {{Policy::Eager, "eager"},
                                                        {Policy::Lean, "lean"},
                                                        {Policy::Liu, "hill and valley"},
                                                        {Policy::Deepest, "depth first"}};

using Key =
    std::tuple<int64_t, int64_t, int64_t, int64_t>; // smallest first; ends in the rank

Key keyOf(Policy policy, OrderState::Effect effect, int64_t readySince, int64_t rank) {
  bool shrinks = effect.net <= 0;
  switch (policy) {
  case Policy::Eager:
    return {!shrinks, 0, 0, rank};
  case Policy::Lean:
    return {effect.net, effect.hill, 0, rank};
  case Policy::Liu:
    return shrinks ? Key{0, effect.hill, effect.net, rank}
                   : Key{1, effect.net - effect.hill, effect.net, rank};
  case Policy::Deepest:
    break;
  }
  return {!shrinks, -readySince, effect.net, rank};
}

/// List scheduling: of all ready nodes the one of the smallest key. O((nodes + touches)
/// log nodes).
class ListScheduler {
public:
  ListScheduler(const OrderGraph &graph, const std::vector<int32_t> &rank)
      : graph(graph), rank(rank), state(graph), keys(graph.nodes.size()),
        readySince(graph.nodes.size(), 0), queued(graph.nodes.size(), 0) {}

  /// `lookahead` > 1: judges the best few nodes by the first low point of what they lead
  /// to.
  std::vector<int32_t> run(Policy policy, int lookahead) {
    for (size_t n = 0; n < graph.nodes.size(); ++n)
      if (state.isReady(int32_t(n)))
        enqueue(policy, int32_t(n));
    std::vector<int32_t> order, ready, changed;
    while (!queue.empty()) {
      int32_t node = lookahead > 1 ? bestByRollout(lookahead) : queue.begin()->second;
      queue.erase({keys[node], node});
      queued[node] = 0;
      order.push_back(node);
      ready.clear();
      changed.clear();
      state.run(node, ready, changed);
      ++now;
      for (int32_t other : changed)
        if (queued[other]) {
          queue.erase({keys[other], other});
          enqueue(policy, other);
        }
      for (int32_t other : ready) {
        readySince[other] = now;
        enqueue(policy, other);
      }
    }
    return order;
  }

private:
  void enqueue(Policy policy, int32_t node) {
    keys[node] = keyOf(policy, state.effect(node), readySince[node], rank[node]);
    queue.insert({keys[node], node});
    queued[node] = 1;
  }

  static constexpr int rolloutCandidates = 12;

  int32_t bestByRollout(int depth) {
    int32_t best = -1;
    Key bestKey;
    int tried = 0;
    for (auto it = queue.begin(); it != queue.end() && tried < rolloutCandidates;
         ++it, ++tried) {
      Key key = keyOf(Policy::Liu, rollout(it->second, depth), 0, rank[it->second]);
      if (best < 0 || key < bestKey) {
        best = it->second;
        bestKey = key;
      }
    }
    return best;
  }

  /// Runs the node and then greedily what it made ready; gives the effect up to the
  /// lowest level reached.
  OrderState::Effect rollout(int32_t first, int depth) {
    int64_t base = state.level(), hill = 0;
    OrderState::Effect lowest{0, INT64_MAX};
    std::vector<int32_t> trail, ready;
    int32_t node = first;
    while (node >= 0) {
      hill = std::max(hill, state.level() + state.effect(node).hill - base);
      std::vector<int32_t> ignored;
      state.run(node, ready, ignored);
      trail.push_back(node);
      if (state.level() - base < lowest.net)
        lowest = {hill, state.level() - base};
      node = -1;
      if (int(trail.size()) < depth)
        for (int32_t other : ready)
          if (state.isReady(other) &&
              (node < 0 || std::pair(state.effect(other).net, rank[other]) <
                               std::pair(state.effect(node).net, rank[node])))
            node = other;
    }
    for (auto it = trail.rbegin(); it != trail.rend(); ++it)
      state.undo(*it);
    return lowest;
  }

  const OrderGraph &graph;
  const std::vector<int32_t> &rank; // position of a node in the order that breaks ties
  OrderState state;
  std::vector<Key> keys;
  std::vector<int64_t> readySince;
  std::vector<char> queued;
  std::set<std::pair<Key, int32_t>> queue;
  int64_t now = 0;
};

struct Search {
  const OrderGraph &forward, &backward;
  OrderSolution &best;

  bool done() const { return best.peakBytes <= best.lowerBoundBytes; }

  void offer(std::vector<int32_t> order, const std::string &name) {
    int64_t peak = forward.peak(order);
    if (peak < best.peakBytes) {
      best.peakBytes = peak;
      best.order = std::move(order);
      best.method = name;
    }
  }

  /// Schedules in one direction of time; ties follow `base`, an order of all nodes.
  void schedule(Policy policy, const char *name, bool backwards, int lookahead,
                const std::vector<int32_t> &base) {
    if (done())
      return;
    std::vector<int32_t> rank(base.size());
    for (size_t i = 0; i < base.size(); ++i)
      rank[base[i]] = int32_t(backwards ? base.size() - 1 - i : i);
    ListScheduler scheduler(backwards ? backward : forward, rank);
    std::vector<int32_t> order = scheduler.run(policy, lookahead);
    if (backwards)
      std::reverse(order.begin(), order.end());
    offer(std::move(order), std::string(name) + (lookahead > 1 ? ", lookahead" : "") +
                                (backwards ? ", backwards" : ""));
  }
};

} // namespace

OrderSolution orderNodes(const OrderProblem &problem) {
  OrderSolution best;
  OrderGraph forward = OrderGraph::build(problem, best.error);
  if (!best.error.empty())
    return best;
  OrderGraph backward = forward.reversed();
  best.order.resize(problem.nodes.size());
  std::iota(best.order.begin(), best.order.end(), 0);
  best.programPeakBytes = best.peakBytes = forward.peak(best.order);
  best.lowerBoundBytes = forward.lowerBound();
  best.method = "program order";

  Search search{forward, backward, best};
  const std::vector<int32_t> program = best.order;
  for (auto [policy, name] : policies)
    for (bool backwards : {false, true})
      search.schedule(policy, name, backwards, 1, program);
  for (bool backwards : {false, true})
    search.schedule(Policy::Lean, "lean", backwards, 12, program);
  // The winner, with what allocates moved late and what frees moved early, until that
  // gains nothing.
  for (int64_t before = INT64_MAX; best.peakBytes < before && !search.done();) {
    before = best.peakBytes;
    for (bool backwards : {true, false}) {
      std::vector<int32_t> base = best.order;
      search.schedule(Policy::Eager, "eager over the best", backwards, 1, base);
    }
  }
  return best;
}

} // namespace sluice
