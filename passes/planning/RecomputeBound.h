#pragma once
// Lower bound on the time of every schedule within a budget: no plan can be predicted
// better.

#include "passes/planning/RecomputeCut.h"

#include <map>
#include <memory>

namespace sluice {

/// Takes the best bound of a fixed set of instants: the first backward operation (all
/// kept values are resident), some spread over the backward part, and those with the most
/// unavoidable bytes. Non-increasing in the budget.
class RecomputeBound {
public:
  explicit RecomputeBound(const RecomputeGraph &graph, int32_t instants = 24);

  /// Microseconds of the whole step; infinite if the budget is proved too small.
  double timeUs(int64_t budgetBytes);
  RecomputeCertificate certificate(int64_t budgetBytes);

private:
  RecomputeCut &cutAt(size_t position);
  RecomputeCertificate tooSmall(int64_t budgetBytes) const;

  const RecomputeGraph &graph;
  StructuralMinimum minimum;
  std::vector<int32_t> positions;
  std::map<size_t, std::unique_ptr<RecomputeCut>> cuts; // built when first asked
};

} // namespace sluice
