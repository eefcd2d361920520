#pragma once
// Checks recompute plans and lower bounds. Shares no code with the planner.

#include "passes/planning/Recompute.h"

namespace sluice {

/// Proof that no schedule of a budget takes less time, by weak duality. While backward
/// operation `position` runs, some forward values are resident beside what any schedule
/// holds; let `free` be the bytes the budget leaves for them. What later operations need
/// and is not resident runs again. For any price, a flow of amount F (in units) through
/// the network of RecomputeCut.h, with capacities price * bytes and cost, shows
///   time >= once + F * unitUs - price * free.
struct RecomputeCertificate {
  int64_t budgetBytes = 0;
  double boundUs = 0;      ///< on the time of the whole step
  bool infeasible = false; ///< the budget is below what `position` alone needs
  int32_t position = -1;   ///< -1: only that every operation runs once
  int32_t value = -1;      ///< if infeasible, without a flow: `position` reads the value,
                           ///< and each way to have it then needs more; -1 at a forward
                           ///< operation: what that touches does not fit
  double price = 0;        ///< microseconds per byte
  double unitUs = 1;       ///< microseconds per unit of flow
  struct Save {
    int32_t value;
    int64_t flow; ///< from A(value) to R(its producer)
  };
  struct Read {
    int32_t op, value;
    int64_t flow; ///< from R(op) to A(value)
  };
  std::vector<Save> saves;
  std::vector<Read> reads;
};

/// Empty if the certificate proves its bound.
std::string checkCertificate(const RecomputeProblem &problem,
                             const RecomputeCertificate &certificate);

/// Empty if the schedule is one of the problem: each operation runs, backward ones once
/// and in order, none again that must not, inputs exist; time, peak and clones are as
/// stated.
std::string checkSchedule(const RecomputeProblem &problem,
                          const RecomputeSolution &solution);

} // namespace sluice
