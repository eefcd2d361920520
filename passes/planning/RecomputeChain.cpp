#include "passes/planning/RecomputeChain.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <queue>
#include <tuple>

namespace sluice {
namespace {

class ChainBuilder {
public:
  ChainBuilder(const RecomputeGraph &graph, RecomputeChain &chain)
      : graph(graph), chain(chain) {}

  void run(int32_t maxSegments) {
    chain.pinned.assign(graph.valueCount, 0);
    for (int32_t v = 0; v < graph.valueCount; ++v)
      if (graph.isForwardValue(v))
        chain.pinned[v] = graph.liveAtEnd[v] || !graph.rerun[graph.producer[v]];
    chooseBorders(maxSegments);
    assignPhases();
    measure();
  }

private:
  bool inChain(int32_t v) const { return graph.isForwardValue(v) && !chain.pinned[v]; }

  static std::vector<int32_t> everyPoint(int32_t ops) {
    std::vector<int32_t> begins(size_t(std::max(ops, 1)));
    std::iota(begins.begin(), begins.end(), 0);
    return begins;
  }

  /// The leanest point of each of `count` equal stretches.
  static std::vector<int32_t> leanestOfStretches(const std::vector<int64_t> &live,
                                                 int32_t count) {
    std::vector<int32_t> begins{0};
    int32_t ops = int32_t(live.size());
    for (int32_t s = 1; s < count; ++s) {
      int32_t from = std::max(begins.back(), int32_t(int64_t(ops) * (s - 1) / count));
      int32_t to = int32_t(int64_t(ops) * s / count);
      if (from >= to)
        continue;
      auto leanest = std::min_element(live.begin() + from, live.begin() + to);
      begins.push_back(int32_t(leanest - live.begin()) + 1);
    }
    return begins;
  }

  /// Points that are leaner than their surroundings, so that equal layers are cut alike;
  /// then the segments of most bytes in halves, as these are what the least peak is made
  /// of. The leanest of equal stretches where there are too many.
  std::vector<int32_t> leanPoints(const std::vector<int64_t> &live, int32_t count) const {
    int32_t ops = int32_t(live.size());
    std::vector<int32_t> begins{0};
    for (int32_t o = 1; o + 1 < ops; ++o) {
      int32_t next = o + 1;
      while (next + 1 < ops && live[next] == live[o])
        ++next;
      if (live[o] < live[o - 1] && live[o] < live[next])
        begins.push_back(o + 1);
    }
    if (int32_t(begins.size()) > count)
      return leanestOfStretches(live, count);
    std::vector<int64_t> written(ops + 1, 0); // bytes up to each operation
    for (int32_t o = 0; o < ops; ++o) {
      written[o + 1] = written[o];
      for (int32_t v : graph.outputs[o])
        written[o + 1] += inChain(v) && graph.neededAfterForward(v) ? graph.size[v] : 0;
    }
    using Stretch = std::tuple<int64_t, int32_t, int32_t>; // bytes, first, end
    std::priority_queue<Stretch> largest;
    for (size_t i = 0; i < begins.size(); ++i) {
      int32_t end = i + 1 < begins.size() ? begins[i + 1] : ops;
      largest.push({written[end] - written[begins[i]], -begins[i], end});
    }
    while (int32_t(begins.size()) < count && !largest.empty()) {
      auto [bytes, negated, end] = largest.top();
      largest.pop();
      int32_t first = -negated, middle = -1;
      int64_t best = std::numeric_limits<int64_t>::max();
      for (int32_t o = first + 1; o < end; ++o) {
        int64_t left = written[o] - written[first], right = written[end] - written[o];
        if (int64_t more = std::max(left, right); more < best)
          best = more, middle = o;
      }
      if (middle < 0)
        continue;
      begins.push_back(middle);
      largest.push({written[middle] - written[first], -first, middle});
      largest.push({written[end] - written[middle], -middle, end});
    }
    std::sort(begins.begin(), begins.end());
    return begins;
  }

  /// Where segments begin: everywhere, or at so many points.
  void chooseBorders(int32_t maxSegments) {
    int32_t ops = graph.firstBackward;
    std::vector<int64_t> change(ops + 1, 0);
    for (int32_t v = 0; v < graph.valueCount; ++v) {
      if (!inChain(v))
        continue;
      int32_t last = graph.producer[v];
      for (int32_t o : graph.readers[v])
        if (graph.isForward(o))
          last = o;
      change[graph.producer[v]] += graph.size[v];
      change[last] -= graph.size[v];
    }
    std::vector<int64_t> live(ops, 0); // after the operation
    int64_t level = 0;
    for (int32_t o = 0; o < ops; ++o)
      live[o] = level += change[o];
    chain.begin = ops <= maxSegments ? everyPoint(ops) : leanPoints(live, maxSegments);
    chain.count = int32_t(chain.begin.size());
    chain.begin.push_back(ops);
    chain.segmentOf.assign(graph.valueCount, 0);
    for (int32_t s = 1; s <= chain.count; ++s)
      for (int32_t o = chain.begin[s - 1]; o < chain.begin[s]; ++o)
        for (int32_t v : graph.outputs[o])
          chain.segmentOf[v] = s;
  }

  int32_t neededBy(int32_t op) const {
    int32_t segment = 0;
    for (int32_t v : graph.inputs[op])
      if (inChain(v))
        segment = std::max(segment, chain.segmentOf[v]);
    return segment;
  }

  /// Phases must fall in program order. A value read much later than its neighbors is
  /// pinned; otherwise the operations before the late reader wait in its phase.
  void assignPhases() {
    int32_t lowest = chain.count, slack = std::max(2, chain.count / 8);
    for (int32_t o = graph.firstBackward; o < graph.opCount; ++o) {
      for (int32_t v : graph.inputs[o])
        if (inChain(v) && chain.segmentOf[v] > lowest + slack)
          chain.pinned[v] = 1;
      if (int32_t segment = neededBy(o))
        lowest = std::min(lowest, segment);
    }
    chain.phase.resize(chain.count + 1);
    int32_t phase = 0;
    chain.lastSegment = chain.segmentOf;
    for (int32_t o = graph.opCount; o-- > graph.firstBackward;) {
      phase = std::max(phase, neededBy(o));
      chain.phase[phase].push_back(o);
      for (int32_t v : graph.inputs[o])
        chain.lastSegment[v] = std::max(chain.lastSegment[v], phase);
    }
    for (auto &ops : chain.phase)
      std::reverse(ops.begin(), ops.end());
    for (int32_t s = 1; s <= chain.count; ++s)
      for (int32_t o = chain.begin[s - 1]; o < chain.begin[s]; ++o)
        for (int32_t v : graph.inputs[o])
          chain.lastSegment[v] = std::max(chain.lastSegment[v], s);
  }

  void measure() {
    chain.costUs.assign(chain.count + 1, 0);
    for (int32_t s = 1; s <= chain.count; ++s)
      for (int32_t o = chain.begin[s - 1]; o < chain.begin[s]; ++o)
        chain.costUs[s] += graph.rerun[o] ? graph.again[o] : 0;
    for (int32_t v = 0; v < graph.valueCount; ++v) {
      bool aside = graph.preexisting[v] ? graph.liveAtEnd[v] || !graph.readers[v].empty()
                                        : chain.pinned[v] && graph.neededAfterForward(v);
      chain.pinnedBytes += aside ? graph.size[v] : 0;
    }
    chain.gradientBytes.assign(chain.count + 1, 0);
    std::vector<char> alive(graph.valueCount, 0);
    int64_t level = 0;
    auto hold = [&](int32_t v) {
      if (!alive[v] && graph.producer[v] >= graph.firstBackward)
        alive[v] = 1, level += graph.size[v];
    };
    for (int32_t v = 0; v < graph.valueCount; ++v)
      if (graph.liveAtEnd[v])
        hold(v);
    for (int32_t s = 0; s <= chain.count; ++s) {
      for (size_t i = chain.phase[s].size(); i-- > 0;) {
        int32_t o = chain.phase[s][i];
        for (int32_t v : graph.outputs[o])
          if (alive[v])
            alive[v] = 0, level -= graph.size[v];
        for (int32_t v : graph.inputs[o])
          hold(v);
      }
      chain.gradientBytes[s] = level;
    }
  }

  const RecomputeGraph &graph;
  RecomputeChain &chain;
};

} // namespace

RecomputeChain RecomputeChain::build(const RecomputeGraph &graph, int32_t maxSegments) {
  RecomputeChain chain;
  ChainBuilder(graph, chain).run(maxSegments);
  return chain;
}

ChainBytes::ChainBytes(const RecomputeGraph &graph, const RecomputeChain &chain)
    : graph(graph), chain(chain) {
  size_t rows = size_t(chain.count) + 1;
  borders.assign(rows * rows, 0);
  forwards.assign(rows * rows, 0);
  retains.assign(rows, 0);
  between.assign(rows * rows, 0);
  retainPeaks.assign(rows, 0);
  leafPeaks.assign(rows, 0);
  phasePeaks.assign(rows, 0);
  measureBorders();
  measureForward();
  for (int32_t s = 1; s <= chain.count; ++s) {
    measureRetained(s);
    measureLeaf(s);
    measurePhase(s);
  }
}

void ChainBytes::measureBorders() {
  for (int32_t v = 0; v < graph.valueCount; ++v) {
    if (!graph.isForwardValue(v) || chain.pinned[v])
      continue;
    int32_t made = chain.segmentOf[v];
    for (int32_t to = made; to < chain.lastSegment[v]; ++to)
      for (int32_t from = 0; from < made; ++from)
        borders[index(from, to)] += graph.size[v];
  }
}

void ChainBytes::measureForward() {
  std::vector<int32_t> lastRead(graph.valueCount, -1);
  for (int32_t o = 0; o < graph.firstBackward; ++o)
    for (int32_t v : graph.inputs[o])
      lastRead[v] = o;
  for (int32_t from = 0; from < chain.count; ++from) {
    auto counts = [&](int32_t v) {
      return graph.isForwardValue(v) && !chain.pinned[v] && chain.segmentOf[v] > from;
    };
    int64_t level = 0, peak = 0;
    for (int32_t s = from + 1; s <= chain.count; ++s) {
      for (int32_t o = chain.begin[s - 1]; o < chain.begin[s]; ++o) {
        int64_t written = 0, freed = 0;
        for (int32_t v : graph.outputs[o]) {
          written += graph.size[v]; // pinned ones too: they may be written here
          bool dies = lastRead[v] < 0 && chain.lastSegment[v] <= s;
          freed += !counts(v) || dies ? graph.size[v] : 0;
        }
        for (int32_t v : graph.inputs[o])
          if (counts(v) && lastRead[v] == o && chain.lastSegment[v] <= s)
            freed += graph.size[v];
        peak = std::max(peak, level + written + graph.workspace[o]);
        level += written - freed;
      }
      forwards[index(from, s)] = peak;
    }
  }
}

/// Peak of the operations of a segment that `runs` marks; values live until the last of
/// these that reads them, those that `stays` marks to the end.
int64_t ChainBytes::segmentPeak(int32_t s, const std::vector<char> &runs,
                                const std::vector<char> &stays) const {
  int64_t level = 0, peak = 0;
  std::vector<char> alive(graph.valueCount, 0);
  auto counts = [&](int32_t v) { return chain.segmentOf[v] == s && !chain.pinned[v]; };
  for (int32_t v = 0; v < graph.valueCount; ++v)
    if (counts(v) && stays[v])
      alive[v] = 1, level += graph.size[v];
  for (int32_t o = chain.begin[s]; o-- > chain.begin[s - 1];) {
    if (!runs[o - chain.begin[s - 1]])
      continue;
    int64_t during = level + graph.workspace[o];
    for (int32_t v : graph.outputs[o]) {
      during += alive[v] ? 0 : graph.size[v];
      level -= alive[v] ? graph.size[v] : 0;
      alive[v] = 0;
    }
    for (int32_t v : graph.inputs[o])
      if (counts(v) && !alive[v]) {
        alive[v] = 1;
        level += graph.size[v];
        during += graph.size[v];
      }
    peak = std::max(peak, during);
  }
  return peak;
}

void ChainBytes::measureRetained(int32_t s) {
  std::vector<char> runs(chain.begin[s] - chain.begin[s - 1], 1);
  std::vector<char> stays(graph.valueCount, 0);
  for (int32_t o = chain.begin[s - 1]; o < chain.begin[s]; ++o)
    for (int32_t v : graph.outputs[o]) {
      bool phase = !graph.readers[v].empty() && !graph.isForward(graph.readers[v].back());
      stays[v] = phase || chain.lastSegment[v] > s;
      retains[s] += stays[v] && !chain.pinned[v] ? graph.size[v] : 0;
    }
  retainPeaks[s] = segmentPeak(s, runs, stays);
}

void ChainBytes::measureLeaf(int32_t s) {
  int32_t first = chain.begin[s - 1];
  std::vector<char> runs(chain.begin[s] - first, s == chain.count);
  std::vector<char> stays(graph.valueCount, 0);
  for (int32_t o : chain.phase[s])
    for (int32_t v : graph.inputs[o]) {
      if (!graph.isForwardValue(v) || chain.pinned[v] || stays[v])
        continue;
      stays[v] = 1;
      if (chain.segmentOf[v] == s)
        runs[graph.producer[v] - first] = 1;
      for (int32_t from = 0; from < chain.segmentOf[v] && chain.segmentOf[v] < s; ++from)
        between[index(from, s)] += graph.size[v];
    }
  for (int32_t o = chain.begin[s]; o-- > first;)
    if (runs[o - first])
      for (int32_t v : graph.inputs[o])
        if (chain.segmentOf[v] == s)
          runs[graph.producer[v] - first] = 1;
  leafPeaks[s] = segmentPeak(s, runs, stays);
}

void ChainBytes::measurePhase(int32_t s) {
  // From the end of the phase: what later phases read of the gradients, and no value of
  // the segment.
  std::vector<char> alive(graph.valueCount, 0);
  int64_t level = chain.gradientBytes[s - 1];
  auto counts = [&](int32_t v) {
    if (graph.producer[v] >= graph.firstBackward)
      return true;
    return graph.isForwardValue(v) && !chain.pinned[v] && chain.segmentOf[v] == s;
  };
  for (size_t i = chain.phase[s].size(); i-- > 0;) {
    int32_t o = chain.phase[s][i];
    int64_t unread = 0, written = 0;
    auto readLater = [&](int32_t v) {
      return alive[v] || graph.liveAtEnd[v] ||
             (!graph.readers[v].empty() &&
              graph.readers[v].back() > chain.phase[s].back());
    };
    for (int32_t v : graph.outputs[o])
      (readLater(v) ? written : unread) += graph.size[v];
    int64_t during = level + unread + graph.workspace[o];
    level -= written;
    for (int32_t v : graph.inputs[o])
      if (!alive[v] && counts(v)) {
        alive[v] = 1;
        bool held =
            graph.producer[v] >= graph.firstBackward &&
            (graph.liveAtEnd[v] || graph.readers[v].back() > chain.phase[s].back());
        if (held)
          continue; // in the level already: later phases read it too
        level += graph.size[v];
        during += graph.size[v];
      }
    phasePeaks[s] = std::max(phasePeaks[s], during);
  }
}

} // namespace sluice
