#include "runtime/continual/StateSnapshot.h"

#include <cstring>

namespace sluice {

StateSnapshot::StateSnapshot(PlanPtr given) : plan(std::move(given)) {
  size_t bytes = 0;
  for (uint32_t i = 0; i < sizeOf(plan->raw().state()); ++i)
    bytes += plan->raw().state()->Get(i)->size();
  content.resize(bytes);
}

/// The same tensors, by name and size.
Status StateSnapshot::check(const Session &session) const {
  const auto *own = plan->raw().state(), *other = session.plan().raw().state();
  bool isSame = sizeOf(own) == sizeOf(other);
  for (uint32_t i = 0; isSame && i < sizeOf(own); ++i)
    isSame = viewOf(own->Get(i)->name()) == viewOf(other->Get(i)->name()) &&
             own->Get(i)->size() == other->Get(i)->size();
  return isSame ? Status::success()
                : Status::refused("the snapshot is of a plan with other state");
}

Status StateSnapshot::take(const Session &session) {
  if (Status status = check(session); !status.ok())
    return status;
  if (session.pendingMicroBatches() > 0)
    return Status::usage("a snapshot is taken between updates; " +
                         std::to_string(session.pendingMicroBatches()) +
                         " micro-batches of a window are done: flush first");
  std::lock_guard lock(mutex);
  uint8_t *target = content.data();
  for (uint32_t i = 0; i < sizeOf(plan->raw().state()); ++i) {
    auto bytes = session.state(viewOf(plan->raw().state()->Get(i)->name()));
    if (!bytes.empty())
      std::memcpy(target, bytes.data(), bytes.size());
    target += plan->raw().state()->Get(i)->size();
  }
  updateCount = session.updates(), sampleCount = session.samples();
  seed = session.seed();
  changes = session.changes();
  ++taken;
  return Status::success();
}

Status StateSnapshot::apply(Session &session) const {
  if (Status status = check(session); !status.ok())
    return status;
  std::lock_guard lock(mutex);
  if (taken == 0)
    return Status::usage("the snapshot is empty; take one first");
  session.resumeAt(updateCount, sampleCount, seed);
  session.clearChanges();
  for (const auto &[key, value] : changes)
    if (Status status = session.applyChange(key, value); !status.ok())
      return status;
  const uint8_t *source = content.data();
  for (uint32_t i = 0; i < sizeOf(plan->raw().state()); ++i) {
    auto bytes = session.state(viewOf(plan->raw().state()->Get(i)->name()));
    if (!bytes.empty())
      std::memcpy(bytes.data(), source, bytes.size());
    source += plan->raw().state()->Get(i)->size();
  }
  return Status::success();
}

int64_t StateSnapshot::version() const {
  std::lock_guard lock(mutex);
  return taken;
}

int64_t StateSnapshot::updates() const {
  std::lock_guard lock(mutex);
  return updateCount;
}

} // namespace sluice
