#pragma once
// Plans that run a value again at most once and then keep it: cuts, mixed and polished
// until the simulated peak meets a target.

#include "passes/planning/RecomputeBound.h"
#include "passes/planning/RecomputeSchedule.h"

#include <map>

namespace sluice {

/// Plans none of which is beaten in both bytes and time, by bytes.
class ParetoPlans {
public:
  struct Plan {
    ScheduleCost cost;
    std::vector<bool> kept;        ///< by value; or, where it is empty,
    std::vector<int32_t> sequence; ///< the runs themselves
    const char *method = "";
  };

  bool wouldTake(const ScheduleCost &cost) const;
  void add(Plan plan);
  /// The fastest of at most that many bytes; null if there is none.
  const Plan *fastestWithin(int64_t bytes) const;
  const std::map<int64_t, Plan> &all() const { return plans; }

private:
  std::map<int64_t, Plan> plans; // time falls strictly as bytes rise
};

class RecomputePlanner {
public:
  RecomputePlanner(const RecomputeGraph &graph, RecomputeCut &boundary,
                   ParetoPlans &plans);

  void keepEverything();
  /// Looks for the fastest plan within the target; what it meets on the way is kept too.
  void planFor(int64_t targetBytes);
  /// All 2^n ways to keep the n values that may be kept. False if n is above the limit.
  bool enumerate(int32_t limit);

private:
  ScheduleCost tryKept(const std::vector<char> &kept, const char *method);
  std::vector<char> bisect(int64_t targetBytes, bool lateFirst);
  void polish(std::vector<char> kept, int64_t targetBytes);
  double worthOf(int32_t value);
  std::vector<int32_t> saveCandidates(const std::vector<char> &kept);

  const RecomputeGraph &graph;
  RecomputeCut &boundary;
  ParetoPlans &plans;
  ScheduleSimulator simulator;
  std::vector<char> again;                 // by operation, for worthOf
  std::vector<int32_t> reads, stack, undo; // by operation: reads of its results behind
};

} // namespace sluice
