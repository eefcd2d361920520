#pragma once
// All plans of a step worth having, in bytes and time. The frontier does not depend on a
// budget; the plan for a budget is its fastest member that fits, so more memory never
// gives a slower prediction.

#include "passes/planning/Recompute.h"
#include "passes/planning/RecomputeCertificate.h"

#include <memory>

namespace sluice {

struct FrontierOptions {
  int32_t targets = 40;    ///< budgets planned for, evenly from the least to the most
  int32_t exactLimit = 14; ///< up to so many keepable values all choices are simulated
  int32_t segments = 256;  ///< of the chain for plans of several levels
  int32_t slots = 96;      ///< of bytes in its tables
  int32_t boundInstants = 24;
};

struct FrontierMember {
  int64_t peakBytes = 0;
  double timeUs = 0;
  std::string method;
};

class Frontier {
public:
  static Frontier build(const RecomputeProblem &problem,
                        const FrontierOptions &options = {});
  Frontier(Frontier &&);
  ~Frontier();

  /// Empty unless the problem is malformed; then there are no members.
  const std::string &error() const { return message; }
  /// Bytes rise, times fall. The last one runs nothing again.
  const std::vector<FrontierMember> &members() const { return list; }
  int64_t smallestBytes() const { return list.empty() ? 0 : list.front().peakBytes; }
  /// No schedule, by any planner, has a lower peak.
  int64_t structuralMinimumBytes() const;

  RecomputeSolution plan(size_t member) const;
  /// The fastest member within the budget, or an error that states the smallest budget
  /// and what fills it.
  RecomputeSolution planForBudget(int64_t budgetBytes) const;

  /// No schedule within the budget takes less; infinite where none exists. Not increasing
  /// in the budget.
  double lowerBoundUs(int64_t budgetBytes) const;
  RecomputeCertificate certificate(int64_t budgetBytes) const;

private:
  struct Planner;
  Frontier();
  std::unique_ptr<Planner> planner;
  std::string message;
  std::vector<FrontierMember> list;
};

} // namespace sluice
