#pragma once
// Plans that run a value again more than once, for budgets where one run is not enough:
// the dynamic programme over chains of Revolve (Griewank and Walther 2000) and Rotor
// (Beaumont et al. 2019), with sizes and times of each segment.

#include "passes/planning/RecomputeChain.h"
#include "passes/planning/RecomputePlanner.h"

namespace sluice {

/// To take segments i + 1 .. j backwards with border i at hand, run up to some border k,
///   split:  keep border k; take k + 1 .. j; drop it; take i + 1 .. k;
///   retain: also keep what phase k reads; take k + 1 .. j; phase k; take i + 1 .. k - 1;
///   leaf:   the only segment, and its phase.
/// O(count^3 * slots) once for all budgets.
class RecomputeLevels {
public:
  RecomputeLevels(const RecomputeGraph &graph, int32_t maxSegments, int32_t slots);

  /// Adds plans of peaks from the least that a chain reaches up to `topBytes`.
  void addPlans(int64_t topBytes, ParetoPlans &plans);

private:
  /// Choices: a border to split at, or retainAtZero - k.
  static constexpr int32_t leaf = -1, none = -2, retainAtZero = -10;

  /// A choice in detail; `none` for what it does not have.
  struct Move {
    int64_t needed = 0;   ///< bytes while it runs, beside `rest` and `again`
    int64_t held = 0;     ///< bytes while the rest is taken
    int32_t runTo = 0;    ///< last segment that runs forward
    int32_t rest = none;  ///< then (rest, j) is taken,
    int32_t phase = none; ///< then this phase runs,
    int32_t again = none; ///< then (i, again) is taken
  };

  struct Table { // by pair of borders and slot
    int64_t unit = 1;
    std::vector<float> us, zeros;
    std::vector<int32_t> saturated; ///< by pair: from this slot on nothing runs again
    std::vector<int32_t> choice;
    int64_t slotsOf(int64_t amount) const { return (amount + unit - 1) / unit; }
  };

  size_t pairIndex(int32_t i, int32_t j) const {
    return size_t(i) * size_t(chain.count + 1) + size_t(j);
  }
  int64_t bytesOfMove(int32_t i, int32_t j, int32_t choice) const;
  Move moveOf(int32_t i, int32_t j, int32_t choice) const;
  int64_t leastOfMove(const Move &move, int32_t i, int32_t j) const;
  template <typename Visit> void forEachChoice(int32_t i, int32_t j, Visit visit) const;
  void findLeast();
  Table fill(int64_t topBytes) const;
  void relax(Table &table, int32_t i, int32_t j, int32_t choice) const;

  void emitSegment(int32_t segment);
  void emitPhase(int32_t segment);
  void emit(const Table *table, int32_t i, int32_t j, int32_t slot);
  void emitPlan(const Table *table, int32_t slot, ParetoPlans &plans);

  const RecomputeGraph &graph;
  RecomputeChain chain;
  ChainBytes bytes;
  int32_t slots;
  std::vector<int64_t> least; // bytes, by pair
  std::vector<int32_t> leastChoice;
  std::vector<double> forwardUs; // of segments up to
  std::vector<int32_t> sequence;
  std::vector<char> hasRun; // by segment
  ScheduleSimulator simulator;
};

} // namespace sluice
