#pragma once
// Why a tensor is kept, recomputed or offloaded, and at what price, from a plan file.

#include "runtime/Plan.h"

#include <string>
#include <utility>
#include <vector>

namespace sluice::cli {

/// Subject and why, for each part of a tensor's life.
using Reasons = std::vector<std::pair<std::string, std::string>>;

/// Of a variant: every value that is recomputed or offloaded, and what is kept for the
/// backward part where something asks for less memory.
Reasons memoryChoices(const Plan &plan, const PlanVariant &variant);

/// Of one tensor: a parameter with its gradient and moments, or a value of the forward
/// part, by the name of its node or its own. Where nothing has that name, of all whose
/// names contain it.
Reasons tensorStory(const Plan &plan, const PlanVariant &variant,
                    const std::string &wanted);

} // namespace sluice::cli
