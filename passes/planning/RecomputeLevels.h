#pragma once
// Plans that run a value again more than once, for budgets where one run is not enough:
// the dynamic programme over chains of Revolve (Griewank and Walther 2000) and Rotor
// (Beaumont et al. 2019), with sizes and times of each segment.

#include "passes/planning/RecomputeChain.h"
#include "passes/planning/RecomputePlanner.h"

namespace sluice {

/// To take segments i + 1 .. j backwards with border i at hand:
///   leaf      run the only segment, keep what its phase reads, run the phase;
///   retain    run segment i + 1 and keep what its phase reads; take the others; its
///   phase; split k   run up to border k, keep that; take k + 1 .. j; drop it; take i + 1
///   .. k.
/// O(count^3 * slots) once for all budgets.
class RecomputeLevels {
public:
  RecomputeLevels(const RecomputeGraph &graph, int32_t maxSegments, int32_t slots);

  /// Adds plans of peaks from the least that a chain reaches up to `topBytes`.
  void addPlans(int64_t topBytes, ParetoPlans &plans);

private:
  enum : int16_t { none = -2, leaf = -1, retain = 0 }; // above 0: split there

  struct Table { // by pair of borders and slot
    int64_t unit = 1;
    std::vector<float> us;
    std::vector<int16_t> choice;
  };

  size_t pairIndex(int32_t i, int32_t j) const {
    return size_t(i) * size_t(chain.count + 1) + size_t(j);
  }
  int64_t leafBytes(int32_t segment) const;
  int64_t lastBytes(int32_t from, int32_t segment) const;
  void findLeast();
  void leastOf(int32_t i, int32_t j);
  Table fill(int64_t topBytes) const;
  void fillPair(Table &table, int32_t i, int32_t j) const;
  void relax(Table &table, int32_t i, int32_t j, int16_t choice, int64_t needed) const;

  void emitSegment(int32_t segment);
  void emitPhase(int32_t segment);
  void emit(const Table *table, int32_t i, int32_t j, int32_t slot);
  void emitPlan(const Table *table, int32_t slot, ParetoPlans &plans);

  const RecomputeGraph &graph;
  RecomputeChain chain;
  ChainBytes bytes;
  int32_t slots;
  std::vector<int64_t> least; // bytes, by pair
  std::vector<int16_t> leastChoice;
  std::vector<double> forwardUs; // of segments up to
  std::vector<int32_t> sequence;
  std::vector<char> hasRun; // by segment
  ScheduleSimulator simulator;
};

} // namespace sluice
