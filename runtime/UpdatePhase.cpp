#include "runtime/UpdatePhase.h"

namespace sluice {

UpdatePhase::UpdatePhase(const fbs::Plan &plan, int64_t *waiting)
    : turn(plan.update_every()), waiting(waiting) {
  if (plan.groups())
    for (const fbs::ParamGroup *group : *plan.groups())
      longest = std::max(longest, group->delay());
}

bool UpdatePhase::hasWaiting() const {
  // Groups that interleave wait for their turn, all but those that just had it.
  return waiting && *waiting > 0;
}

bool UpdatePhase::applies(const fbs::ParamGroup &group, int64_t step) const {
  if (group.every() > 1 && step % turn != group.phase())
    return false;
  return group.delay() == 0 || (waiting && *waiting >= group.delay());
}

bool UpdatePhase::appliesInRound(const fbs::ParamGroup &group, int64_t steps,
                                 int64_t round) const {
  if (!hasWaiting())
    return false;
  if (group.delay() > 0) // the ring's oldest slot holds step `steps` - delay + round
    return round < group.delay() && *waiting + round >= group.delay();
  return group.every() > 1 && round < turn - 1 && (steps + round) % turn == group.phase();
}

} // namespace sluice
