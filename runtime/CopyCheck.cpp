// Checks of the copies of a program.

#include "runtime/PlanCheck.h"

namespace sluice {

namespace {

uint64_t reservation(const fbs::Plan &plan, const fbs::Program &program,
                     fbs::Space space) {
  switch (space) {
  case fbs::Space::state:
    return plan.state_bytes();
  case fbs::Space::step:
    return program.step_bytes();
  case fbs::Space::host_state:
    return plan.host_state_bytes();
  case fbs::Space::host_step:
    return program.host_bytes();
  }
  return 0;
}

/// Runs all queues: a wait for more than another one will ever signal would hang.
Status checkProgress(const fbs::Program &program, const std::string &where) {
  uint32_t launches = sizeOf(program.launches()), copies = sizeOf(program.copies());
  uint32_t collectives = sizeOf(program.collectives());
  uint32_t launch = 0, copy = 0, collective = 0, signalled = 0;
  for (bool moved = true; moved;) {
    moved = false;
    auto mayRun = [&](const fbs::Launch *next) {
      return next->wait_copies() <= copy && next->wait_collectives() <= collective;
    };
    for (; launch < launches && mayRun(program.launches()->Get(launch));
         ++launch, moved = true)
      if (program.launches()->Get(launch)->signal())
        signalled = launch + 1;
    for (; copy < copies && program.copies()->Get(copy)->wait_launches() <= signalled;
         ++copy)
      moved = true;
    for (; collective < collectives &&
           program.collectives()->Get(collective)->wait_launches() <= signalled;
         ++collective)
      moved = true;
  }
  std::string name = where + "launch " + std::to_string(launch);
  if (launch < launches)
    return Status::damaged(name + (program.launches()->Get(launch)->wait_copies() > copy
                                       ? " waits for a copy that never ends"
                                       : " waits for a collective that never ends"));
  if (copy < copies)
    return Status::damaged(where + "copy " + std::to_string(copy) +
                           " waits for a launch that never signals");
  if (collective < collectives)
    return Status::damaged(where + "collective " + std::to_string(collective) +
                           " waits for a launch that never signals");
  return Status::success();
}

} // namespace

Status checkCopies(const fbs::Plan &plan, const fbs::Program &program,
                   VisitBudget &budget) {
  std::string where =
      "plan refused: program '" + std::string(viewOf(program.name())) + "': ";
  if (!budget.take(sizeOf(program.copies())))
    return Status::damaged(where + "its parts are shared");
  for (uint32_t i = 0; i < sizeOf(program.copies()); ++i) {
    const fbs::Copy *copy = program.copies()->Get(i);
    std::string name = where + "copy " + std::to_string(i);
    for (fbs::Space space : {copy->from_space(), copy->to_space()})
      if (space < fbs::Space::MIN || space > fbs::Space::MAX)
        return Status::damaged(name + " is of an unknown space");
    bool fromHost = copy->from_space() >= fbs::Space::host_state;
    bool toHost = copy->to_space() >= fbs::Space::host_state;
    if (fromHost == toHost)
      return Status::damaged(name + " does not go from one memory to the other");
    if (!liesInside(copy->from_offset(), copy->size(),
                    reservation(plan, program, copy->from_space())) ||
        !liesInside(copy->to_offset(), copy->size(),
                    reservation(plan, program, copy->to_space())))
      return Status::damaged(name + " lies outside its reservation");
  }
  return checkProgress(program, where);
}

} // namespace sluice
