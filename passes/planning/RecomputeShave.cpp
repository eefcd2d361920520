#include "passes/planning/RecomputeShave.h"

#include <algorithm>
#include <map>
#include <queue>

namespace sluice {
namespace {

constexpr int maxPasses = 12;
constexpr size_t maxOps = 512; // to compute one value again
/// Inputs that are looked at in all passes: behind wide joins each price is dear.
constexpr int64_t maxVisits = 20'000'000;

/// One pass over a sequence. Run i of it is at position 2 i; what is inserted in front of
/// it, at 2 i - 1.
class Shaver {
public:
  Shaver(const RecomputeGraph &graph, const std::vector<int32_t> &sequence,
         int64_t target, int64_t &visits)
      : graph(graph), sequence(sequence), target(target), visits(visits),
        level(sequence.size() + 1, 0), instances(graph.valueCount),
        stamp(graph.opCount, 0), lastReader(graph.valueCount, -1) {
    measure();
  }

  /// True if a run was inserted.
  bool run(std::vector<int32_t> &result) {
    std::map<int32_t, std::vector<int32_t>> inserted; // before which run: operations
    for (int32_t i = 0; i < int32_t(sequence.size()); ++i) {
      if (during(i) <= target || visits > maxVisits)
        continue;
      std::priority_queue<Waiting> waiting = candidatesAt(i);
      refused.clear();
      do {
        Spill best = cheapestSpill(i, waiting);
        if (best.value < 0 && bringBack(waiting)) // there may be room now
          best = cheapestSpill(i, waiting);
        if (best.value < 0)
          break;
        spill(best);
        ++spills;
        auto &list = inserted[best.until];
        list.insert(list.end(), best.ops.begin(), best.ops.end());
      } while (during(i) > target && visits <= maxVisits);
    }
    if (inserted.empty())
      return false;
    result.clear();
    for (int32_t i = 0; i < int32_t(sequence.size()); ++i) {
      if (auto at = inserted.find(i); at != inserted.end())
        result.insert(result.end(), at->second.begin(), at->second.end());
      result.push_back(sequence[i]);
    }
    return true;
  }

private:
  /// From a run that writes the value up to the next one.
  struct Instance {
    int32_t written;
    std::vector<int32_t> reads; // ascending runs
  };
  struct Spill {
    int32_t value = -1;
    int32_t after = 0, until = 0;  // dead behind the run `after`, computed before `until`
    std::vector<int32_t> ops = {}; // that compute it from what is there, in order
    double price = 0;              // microseconds per byte
  };

  /// A value that may be spilled, at a price at least.
  struct Waiting {
    double price;
    int32_t value;
    int64_t knownAt; // count of spills when it was found; -1: a lower bound

    bool operator<(const Waiting &other) const { // the largest comes first in a queue
      return price != other.price ? price > other.price : value > other.value;
    }
  };

  void measure() {
    for (int32_t i = 0; i < int32_t(sequence.size()); ++i) {
      for (int32_t v : graph.inputs[sequence[i]])
        if (!instances[v].empty())
          instances[v].back().reads.push_back(i);
      for (int32_t v : graph.outputs[sequence[i]])
        instances[v].push_back({i, {}});
    }
    // Change behind each run; preexisting values are no candidates but count.
    std::vector<int64_t> change(sequence.size() + 1, 0);
    int64_t start = 0;
    std::vector<int32_t> lastRead(graph.valueCount, -1);
    for (int32_t i = 0; i < int32_t(sequence.size()); ++i)
      for (int32_t v : graph.inputs[sequence[i]])
        lastRead[v] = i;
    for (int32_t v = 0; v < graph.valueCount; ++v) {
      if (graph.preexisting[v]) {
        if (graph.liveAtEnd[v] || lastRead[v] >= 0)
          start += graph.size[v];
        if (!graph.liveAtEnd[v] && lastRead[v] >= 0)
          change[lastRead[v]] -= graph.size[v];
      }
      for (size_t k = 0; k < instances[v].size(); ++k) {
        const Instance &instance = instances[v][k];
        bool stays = graph.liveAtEnd[v] && k + 1 == instances[v].size();
        change[instance.written] += graph.size[v];
        if (!stays)
          change[instance.reads.empty() ? instance.written : instance.reads.back()] -=
              graph.size[v];
      }
    }
    level[0] = start; // before run 0
    for (size_t i = 0; i < sequence.size(); ++i)
      level[i + 1] = level[i] + change[i];
  }

  /// Bytes while run i runs: what is live before it, and what it writes.
  int64_t during(int32_t i) const {
    int32_t o = sequence[i];
    int64_t bytes = level[i] + graph.workspace[o];
    for (int32_t v : graph.outputs[o])
      bytes += graph.size[v];
    return bytes - graph.sharedBytes(o, [&](int32_t v) {
      const Instance *instance = at(v, i);
      return instance && instance->reads.back() == i && !graph.liveAtEnd[v];
    });
  }

  /// The instance of `v` that exists before run i; null if there is none.
  const Instance *at(int32_t v, int32_t i) const {
    const auto &list = instances[v];
    auto behind = std::partition_point(list.begin(), list.end(),
                                       [&](const Instance &k) { return k.written < i; });
    return behind == list.begin() ? nullptr : &*std::prev(behind);
  }

  /// True if `v` is live just before run i whatever is inserted there.
  bool isThere(int32_t v, int32_t i) const {
    if (graph.preexisting[v])
      return true;
    const Instance *instance = at(v, i);
    return instance && !instance->reads.empty() && instance->reads.back() >= i;
  }

  /// The cheapest by price, then by value. A price is known when its candidate comes
  /// first, and again after what has been spilled since; only then is it looked for.
  Spill cheapestSpill(int32_t i, std::priority_queue<Waiting> &waiting) {
    while (!waiting.empty()) {
      Waiting next = waiting.top();
      waiting.pop();
      Spill spill = spillOf(next.value, i);
      if (spill.ops.empty()) {
        refused.push_back({next.price, next.value, spills});
        continue;
      }
      if (next.knownAt == spills && !(spill.price > next.price))
        return spill;
      waiting.push({spill.price, next.value, spills});
    }
    return {};
  }

  bool bringBack(std::priority_queue<Waiting> &waiting) {
    for (const Waiting &candidate : refused)
      if (candidate.knownAt < spills)
        waiting.push({candidate.price, candidate.value, -1});
    refused.clear();
    return !waiting.empty();
  }

  /// Without operations if the value cannot leave before run i and come back.
  Spill spillOf(int32_t v, int32_t i) {
    const Instance *instance = at(v, i);
    if (!instance || instance->reads.empty() || instance->reads.back() < i)
      return {};
    auto next = std::lower_bound(instance->reads.begin(), instance->reads.end(), i);
    if (*next == i) // touched
      return {};
    Spill spill{v, next == instance->reads.begin() ? instance->written : next[-1], *next};
    spill.ops = opsFor(v, spill.until);
    for (int32_t o : spill.ops)
      spill.price += graph.again[o] / double(graph.size[v]);
    return spill;
  }

  /// Values that may be computed again and are written before run i and read behind it,
  /// by what their own operation takes at least.
  std::priority_queue<Waiting> candidatesAt(int32_t i) const {
    std::vector<Waiting> list;
    for (int32_t v = 0; v < graph.valueCount; ++v)
      if (graph.isForwardValue(v) && graph.rerun[graph.producer[v]] &&
          graph.size[v] > 0 && !graph.liveAtEnd[v] && !instances[v].empty() &&
          instances[v].front().written < i)
        list.push_back({graph.again[graph.producer[v]] / double(graph.size[v]), v, -1});
    return std::priority_queue<Waiting>(std::less<Waiting>(), std::move(list));
  }

  /// Operations that compute `v` in front of a run, within the target; none if there is
  /// no short way.
  std::vector<int32_t> opsFor(int32_t v, int32_t until) {
    std::vector<int32_t> ops{graph.producer[v]};
    ++stampNow;
    stamp[ops[0]] = stampNow;
    for (size_t k = 0; k < ops.size(); ++k) {
      if (ops.size() > maxOps || !graph.rerun[ops[k]] || !hasRunBefore(ops[k], until))
        return {};
      visits += int64_t(graph.inputs[ops[k]].size());
      for (int32_t u : graph.inputs[ops[k]])
        if (!isThere(u, until) && stamp[graph.producer[u]] != stampNow) {
          stamp[graph.producer[u]] = stampNow;
          ops.push_back(graph.producer[u]);
        }
    }
    std::sort(ops.begin(), ops.end());
    bool fits = level[until] - graph.size[v] + peakOf(ops, v) <= target;
    return fits ? ops : std::vector<int32_t>();
  }

  /// Bytes of running `ops` for `wanted` alone, beside what is there.
  int64_t peakOf(const std::vector<int32_t> &ops, int32_t wanted) {
    for (size_t k = 0; k < ops.size(); ++k)
      for (int32_t u : graph.inputs[ops[k]])
        lastReader[u] = int32_t(k);
    int64_t live = 0, peak = 0;
    auto isOwn = [&](int32_t u) { // `stamp` is of the same operations
      return graph.producer[u] >= 0 && stamp[graph.producer[u]] == stampNow;
    };
    for (size_t k = 0; k < ops.size(); ++k) {
      for (int32_t u : graph.outputs[ops[k]])
        live += graph.size[u];
      peak = std::max(peak, live + graph.workspace[ops[k]]);
      for (int32_t u : graph.outputs[ops[k]])
        live -= lastReader[u] < 0 && u != wanted ? graph.size[u] : 0;
      for (int32_t u : graph.inputs[ops[k]])
        if (isOwn(u) && u != wanted && lastReader[u] == int32_t(k))
          live -= graph.size[u];
    }
    for (int32_t o : ops)
      for (int32_t u : graph.inputs[o])
        lastReader[u] = -1;
    return peak;
  }

  bool hasRunBefore(int32_t o, int32_t run) const {
    for (int32_t v : graph.outputs[o])
      if (!at(v, run))
        return false;
    return true;
  }

  void spill(const Spill &spill) {
    for (int32_t o : spill.ops) {
      for (int32_t u : graph.inputs[o])
        if (!graph.preexisting[u])
          readAt(u, spill.until);
      for (int32_t u : graph.outputs[o])
        if (u != spill.value && !isThere(u, spill.until))
          insert(u, {spill.until - 1, {spill.until}});
    }
    auto *old = const_cast<Instance *>(at(spill.value, spill.until));
    Instance again{spill.until - 1, {}}; // exists before `until`, not before that
    auto from = std::lower_bound(old->reads.begin(), old->reads.end(), spill.until);
    again.reads.assign(from, old->reads.end());
    old->reads.erase(from, old->reads.end());
    insert(spill.value, std::move(again));
    for (int32_t i = spill.after + 1; i < spill.until; ++i)
      level[i] -= graph.size[spill.value];
  }

  void readAt(int32_t v, int32_t run) {
    if (!isThere(v, run))
      return; // computed by an operation in front
    auto &reads = const_cast<Instance *>(at(v, run))->reads;
    auto place = std::lower_bound(reads.begin(), reads.end(), run);
    if (place == reads.end() || *place != run)
      reads.insert(place, run);
  }

  void insert(int32_t v, Instance instance) {
    auto &list = instances[v];
    auto place = std::partition_point(list.begin(), list.end(), [&](const Instance &k) {
      return k.written <= instance.written;
    });
    list.insert(place, std::move(instance));
  }

  const RecomputeGraph &graph;
  const std::vector<int32_t> &sequence;
  int64_t target;
  int64_t &visits;
  std::vector<int64_t> level; // before each run
  std::vector<std::vector<Instance>> instances;
  std::vector<int64_t> stamp; // by operation: of the last search that met it
  int64_t stampNow = 0;
  int64_t spills = 0;              // so far
  std::vector<Waiting> refused;    // candidates of the run that cannot be spilled
  std::vector<int32_t> lastReader; // by value, while a peak is measured
};

} // namespace

std::vector<int32_t> shavePeaks(const RecomputeGraph &graph,
                                std::vector<int32_t> sequence, int64_t targetBytes) {
  std::vector<int32_t> next;
  int64_t visits = 0;
  for (int pass = 0; pass < maxPasses; ++pass) {
    if (!Shaver(graph, sequence, targetBytes, visits).run(next))
      break;
    sequence.swap(next);
  }
  return sequence;
}

} // namespace sluice
