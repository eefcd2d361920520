#pragma once
// Low-rank adapters of a plan (LoRA): which weights they belong to, and their sum.

#include "runtime/PlanCheck.h"
#include "runtime/Session.h"

#include <string>
#include <vector>

namespace sluice {

/// The tensors exist with sizes that fit. The plan's state has been checked.
Status checkAdapters(const fbs::Plan &plan, VisitBudget &budget);

/// A weight with its adapter added: base + scale * b a, in double, rounded once.
struct MergedWeight {
  std::string base, a, b; // state names
  std::vector<float> values;
};

std::vector<MergedWeight> mergeAdapters(const Session &session);

} // namespace sluice
