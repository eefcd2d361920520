// The C API of snapshots: predictions while another session learns, and going back.

#include "runtime/CApiHandles.h"
#include "runtime/continual/StateSnapshot.h"

using namespace sluice;

struct sluice_snapshot {
  StateSnapshot content;
};

sluice_status sluice_snapshot_create(const sluice_plan *plan, sluice_snapshot **out) {
  if (!plan || !out)
    return report(Status::usage("an argument is null"));
  return report(guarded([&] {
    *out = new sluice_snapshot{StateSnapshot(plan->plan)};
    return Status::success();
  }));
}

void sluice_snapshot_free(sluice_snapshot *snapshot) { delete snapshot; }

sluice_status sluice_snapshot_take(sluice_snapshot *snapshot, sluice_session *session) {
  return with(session, [&](Session &self) {
    return snapshot ? snapshot->content.take(self)
                    : Status::usage("the snapshot is null");
  });
}

sluice_status sluice_snapshot_apply(const sluice_snapshot *snapshot,
                                    sluice_session *session) {
  return with(session, [&](Session &self) {
    return snapshot ? snapshot->content.apply(self)
                    : Status::usage("the snapshot is null");
  });
}

int64_t sluice_snapshot_version(const sluice_snapshot *snapshot) {
  return snapshot ? snapshot->content.version() : 0;
}
