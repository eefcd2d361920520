// Checks of when groups of parameters are updated.

#include "runtime/PlanCheck.h"

namespace sluice {

Status checkUpdates(const fbs::Plan &plan, VisitBudget &budget) {
  constexpr int64_t most = 4096, mostSteps = int64_t(1) << 40;
  auto broken = [](const std::string &text) {
    return Status::damaged("plan refused: " + text);
  };
  int64_t turn = plan.update_every();
  if (turn < 1 || turn > most)
    return broken("groups take turns of " + std::to_string(turn) +
                  " steps, expected 1 to " + std::to_string(most));
  bool waits = turn > 1;
  for (uint32_t i = 0; i < sizeOf(plan.groups()); ++i) {
    const fbs::ParamGroup &group = *plan.groups()->Get(i);
    waits |= group.delay() > 0;
    if ((group.every() != 1 && group.every() != turn) || group.phase() < 0 ||
        group.phase() >= group.every() || group.delay() < 0 || group.delay() > most)
      return broken("group '" + std::string(viewOf(group.name()).substr(0, 200)) +
                    "' has no turn of " + std::to_string(turn) + " steps, or waits for " +
                    std::to_string(group.delay()));
  }
  bool counts = false;
  for (uint32_t i = 0; i < sizeOf(plan.state()); ++i)
    counts |= viewOf(plan.state()->Get(i)->name()) == "window/waiting";
  if (waits && !counts)
    return broken("groups wait for their update without the state 'window/waiting'");
  if (!budget.take(sizeOf(plan.versions())))
    return broken("its parts are shared");
  for (uint32_t i = 0; i < sizeOf(plan.versions()); ++i) {
    const fbs::VersionRow &row = *plan.versions()->Get(i);
    for (int64_t value : {row.step(), row.read(), row.first_gradient() + 1,
                          row.last_gradient() + 1, row.version()})
      if (value < 0 || value > mostSteps)
        return broken("row " + std::to_string(i) + " of its versions is out of range");
  }
  return Status::success();
}

} // namespace sluice
