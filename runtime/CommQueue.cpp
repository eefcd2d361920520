#include "runtime/CommQueue.h"

#include "runtime/Announce.h"
#include "runtime/Trace.h"

#include <cstring>
#include <system_error>

namespace sluice {

Result<std::unique_ptr<CommQueue>> CommQueue::create(Communicator &comm, bool crowded) {
  std::unique_ptr<CommQueue> queue(new CommQueue(comm, crowded));
  try {
    queue->thread = std::thread(&CommQueue::loop, queue.get());
  } catch (const std::system_error &error) {
    return Status::cannotRunHere(
        std::string("cannot start the thread that talks to other ranks: ") +
        error.what());
  }
  return queue;
}

CommQueue::~CommQueue() {
  stopping = true;
  announceNext(generation);
  thread.join();
}

void CommQueue::begin(std::span<const QueuedCollective> list, const Run &run) {
  // The thread sleeps: the last program has waited for all of its collectives.
  collectives = list;
  current = run;
  launchesDone.store(0, std::memory_order_relaxed);
  collectivesDone.store(0, std::memory_order_relaxed);
  announceNext(generation);
}

void CommQueue::launched(uint32_t count) { announce(launchesDone, count); }

void CommQueue::waitFor(uint32_t count) const {
  awaitCount(collectivesDone, count, spins);
}

Status CommQueue::finish() {
  waitFor(static_cast<uint32_t>(collectives.size()));
  return status;
}

static void moveAll(std::span<const QueuedCollective::Move> moves) {
  for (const QueuedCollective::Move &move : moves) {
    if (move.to != move.from)
      std::memcpy(move.to, move.from, move.bytes);
    if (move.zeros > 0)
      std::memset(move.to + move.bytes, 0, move.zeros);
  }
}

Status CommQueue::runOne(const QueuedCollective &collective, uint32_t index) {
  const CallLabel label{current.program, current.update, collective.name, index};
  moveAll(collective.before);
  Status status = collective.op == CommOp::allReduce
                      ? comm.allReduce(collective.parts, collective.type, label)
                  : collective.op == CommOp::reduceScatter
                      ? comm.reduceScatter(collective.parts, collective.type,
                                           collective.shards, label)
                      : comm.allGather(collective.parts, collective.elementBytes,
                                       collective.shards, label);
  if (status.ok())
    moveAll(collective.after);
  return status;
}

void CommQueue::runAll() {
  // Once the last one is counted, begin() may change the members.
  const std::span<const QueuedCollective> list = collectives;
  const Run run = current;
  const auto *hook = run.hook && *run.hook ? run.hook : nullptr;
  for (uint32_t i = 0; i < list.size(); ++i) {
    awaitCount(launchesDone, list[i].waitLaunches, spins);
    if (hook)
      (*hook)(run.index, i, true);
    uint64_t beginNs = run.trace ? nowNs() : 0;
    if (status.ok())
      status = runOne(list[i], i);
    if (run.trace)
      run.trace->record(run.traceRow,
                        {run.index, i | traceCollectiveBit, beginNs, nowNs()});
    if (hook)
      (*hook)(run.index, i, false);
    announce(collectivesDone, i + 1);
  }
}

void CommQueue::loop() {
  for (uint32_t seen = 0;;) {
    awaitCount(generation, seen + 1, spins);
    ++seen;
    if (stopping)
      return;
    runAll();
  }
}

} // namespace sluice
