#include "passes/LiveRanges.h"

#include "passes/Collectives.h"

using namespace mlir;

namespace sluice {

LiveRanges liveRanges(plan::ProgramOp program) {
  LiveRanges ranges;
  int64_t instant = 0;
  for (plan::LaunchOp launch : launchesOf(program)) {
    for (const LaunchAccess &access : accessesOf(launch))
      ranges[access.range.root].include(instant);
    ++instant;
  }
  for (auto buffer : program.getBody().front().getOps<plan::BufferOp>()) {
    if (isInput(buffer))
      ranges[buffer].include(-1);
    if (isOutput(buffer))
      ranges[buffer].include(instant);
  }
  for (QueuedCopy copy : copiesOf(program))
    for (Value end : {copy.op.getSource(), copy.op.getTarget()})
      // Where a launch waits for a copy that begins behind the one before, nothing runs
      // beside it.
      if (copy.waitLaunches < copy.doneBy) {
        ranges[plan::rangeOf(end).root].include(copy.waitLaunches);
        ranges[plan::rangeOf(end).root].include(copy.doneBy - 1);
      }
  for (const QueuedCollective &collective : collectivesOf(program))
    for (const LaunchAccess &access : accessesOf(collective.op)) {
      LiveRange &range = ranges[access.range.root];
      range.include(collective.waitLaunches);
      range.include(std::max(collective.waitLaunches, collective.doneBy - 1));
    }
  return ranges;
}

LiveRanges hostLiveRanges(plan::ProgramOp program) {
  LiveRanges ranges;
  int64_t instant = 0;
  for (QueuedCopy copy : copiesOf(program)) {
    for (Value end : {copy.op.getSource(), copy.op.getTarget()})
      ranges[plan::rangeOf(end).root].include(instant);
    ++instant;
  }
  return ranges;
}

} // namespace sluice
