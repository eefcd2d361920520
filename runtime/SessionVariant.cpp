// Another rung of the memory ladder between two steps: only the step reservation and the
// programs change, the state stays where it is.

#include "runtime/Session.h"

namespace sluice {

Status Session::useVariant(uint32_t rung) {
  if (rung >= planPtr->rungs())
    return Status::usage("variant " + std::to_string(rung) +
                         " is asked for, the plan has " +
                         std::to_string(planPtr->rungs()) + ", counted from 0" +
                         (planPtr->rungs() == 1 ? "; compile with 'memory.ladder'" : ""));
  if (rung == rungIndex)
    return Status::success();
  PlanMemory memory = planPtr->memory(rung);
  // All that can fail comes before anything changes.
  auto step =
      Reservation::make("step", memory.stepBytes, options.step, options.allocator);
  if (!step)
    return {step.status().code, "variant " + std::to_string(rung) + ": " +
                                    step.status().message + "; variant " +
                                    std::to_string(rungIndex) + " stays in use"};
  stepMemory = std::move(*step);
  rungIndex = rung;
  lastProgram = nullptr;
  fillStep(/*isFresh=*/true);
  loadPrograms();
  return Status::success();
}

} // namespace sluice
