// Gradients that wait for their update, and the choice of what a step updates.

#include "runtime/Session.h"

namespace sluice {

void Session::chooseTurns() {
  for (GroupControls &group : controls.groups)
    group.isTurn = phase.applies(*group.group, updatesDone);
}

/// The program that ends a step.
Result<Session::LoadedProgram *> Session::findUpdate(int64_t step) {
  if (phase.every() == 1)
    return find(updateProgram);
  LoadedProgram &loaded = turns[static_cast<size_t>(step % phase.every())];
  if (loaded.program)
    return &loaded;
  return find(updateProgram); // says what there is
}

Status Session::applyPending() {
  if (!phase.hasWaiting())
    return Status::success();
  if (Status status = checkMayTrain(); !status.ok())
    return status;
  if (pending > 0)
    return Status::usage("a window of micro-batches is under way; complete it by flush "
                         "before what waits is applied");
  for (int64_t round = 0; round < phase.rounds(); ++round) {
    auto loaded = findUpdate(updatesDone + round);
    if (!loaded)
      return loaded.status();
    for (GroupControls &group : controls.groups)
      group.isTurn = phase.appliesInRound(*group.group, updatesDone, round);
    fillStep();
    writeControls(samplesDone, 0);
    if (Status status = execute(**loaded, 0); !status.ok())
      return status;
    // Steps are not counted, but the group's own updates are.
    for (GroupControls &group : controls.groups)
      if (group.isTurn && !group.frozen) {
        --group.skipped;
        advanceNadam(group);
      }
  }
  phase.flushed();
  return Status::success();
}

} // namespace sluice
