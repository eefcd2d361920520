#pragma once
// Which parameters a plan updates together.

#include "runtime/plan_generated.h"
#include "runtime/probe/GroupCoupling.h"

#include <map>
#include <string>
#include <vector>

namespace sluice::cli {

/// Groups of `update.grouping`, by the parameter's name: as the plan's decisions say.
std::map<std::string, std::string> updateGroupsOf(const fbs::Plan &plan);
/// The same by group, in the order in which their gradients are ready.
std::vector<ParameterSet> updateGroupList(const fbs::Plan &plan);

} // namespace sluice::cli
