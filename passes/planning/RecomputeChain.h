#pragma once
// The forward part as a chain of segments, with what the multi-level plans of
// RecomputeLevels.h ask of it.

#include "passes/planning/RecomputeGraph.h"

namespace sluice {

/// Cuts program order at points 0..count. The border k is the set of values computed in
/// segments up to k and read behind; who has it can go on from there. Any graph is such a
/// chain; where a border is one value the point separates the graph.
struct RecomputeChain {
  int32_t count = 0;                ///< segments 1..count
  std::vector<int32_t> begin;       ///< first operation of segment s is begin[s - 1]
  std::vector<int32_t> segmentOf;   ///< by value, 0 for those not of the forward part
  std::vector<int32_t> lastSegment; ///< by value: the last that has it as an input
  std::vector<char> pinned;         ///< by value: lives from its only run to its last use
  int64_t pinnedBytes = 0;          ///< with preexisting values: live beside the chain
  std::vector<std::vector<int32_t>> phase; ///< backward operations by the segment whose
                                           ///< values they need; 0: none
  std::vector<double> costUs;              ///< of running a segment once more
  std::vector<int64_t> gradientBytes; ///< live results of backward operations when phase
                                      ///< s begins

  static RecomputeChain build(const RecomputeGraph &graph, int32_t maxSegments);
};

/// Bytes the stretches of a chain need, values of the border they start from not counted.
class ChainBytes {
public:
  ChainBytes(const RecomputeGraph &graph, const RecomputeChain &chain);

  /// Of border `to` that border `from` does not hold.
  int64_t border(int32_t from, int32_t to) const { return borders[index(from, to)]; }
  /// Peak of running segments from + 1 .. to for border `to` only.
  int64_t forward(int32_t from, int32_t to) const { return forwards[index(from, to)]; }
  /// Of a segment: its values that its phase or the border behind it reads.
  int64_t retained(int32_t segment) const { return retains[segment]; }
  /// Peak of running it with all of these retained.
  int64_t retainingForward(int32_t segment) const { return retainPeaks[segment]; }
  /// Peak of running of it only what its phase reads. The last segment runs in full.
  int64_t leafForward(int32_t segment) const { return leafPeaks[segment]; }
  /// Peak of its phase of the backward part, values of the segment included.
  int64_t backward(int32_t segment) const { return phasePeaks[segment]; }
  /// Bytes that phase `to` reads of segments between `from` and itself.
  int64_t readBetween(int32_t from, int32_t to) const { return between[index(from, to)]; }

private:
  size_t index(int32_t from, int32_t to) const {
    return size_t(from) * size_t(chain.count + 1) + size_t(to);
  }
  void measureBorders();
  void measureForward();
  void measureRetained(int32_t segment);
  void measureLeaf(int32_t segment);
  int64_t segmentPeak(int32_t segment, const std::vector<char> &runs,
                      const std::vector<char> &stays) const;
  void measurePhase(int32_t segment);

  const RecomputeGraph &graph;
  const RecomputeChain &chain;
  std::vector<int64_t> borders, forwards, between, retains, retainPeaks, leafPeaks,
      phasePeaks;
};

} // namespace sluice
