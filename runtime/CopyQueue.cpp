#include "runtime/CopyQueue.h"

#include "runtime/Announce.h"
#include "runtime/Trace.h"

#include <cstring>
#include <system_error>

namespace sluice {

Result<std::unique_ptr<CopyQueue>> CopyQueue::create(bool crowded) {
  std::unique_ptr<CopyQueue> queue(new CopyQueue(crowded));
  try {
    queue->thread = std::thread(&CopyQueue::loop, queue.get());
  } catch (const std::system_error &error) {
    return Status::cannotRunHere(
        std::string("cannot start the thread that copies to the host's memory: ") +
        error.what());
  }
  return queue;
}

CopyQueue::~CopyQueue() {
  if (!thread.joinable())
    return;
  stopping = true;
  announceNext(generation);
  thread.join();
}

void CopyQueue::begin(std::span<const QueuedTransfer> list, TraceRing *ring,
                      uint32_t index, const CopyHook *around) {
  // The thread sleeps: the last program has waited for all of its copies.
  transfers = list;
  trace = ring;
  program = index;
  hook = around && *around ? around : nullptr;
  launchesDone.store(0, std::memory_order_relaxed);
  copiesDone.store(0, std::memory_order_relaxed);
  announceNext(generation);
}

void CopyQueue::launched(uint32_t count) { announce(launchesDone, count); }

void CopyQueue::waitFor(uint32_t count) const { awaitCount(copiesDone, count, spins); }

void CopyQueue::run() {
  // Once the last copy is counted, begin() may change the members.
  const std::span<const QueuedTransfer> list = transfers;
  TraceRing *const ring = trace;
  const uint32_t index = program;
  const CopyHook *const around = hook;
  for (uint32_t i = 0; i < list.size(); ++i) {
    const QueuedTransfer &transfer = list[i];
    awaitCount(launchesDone, transfer.waitLaunches, spins);
    if (around)
      (*around)(index, i, true);
    uint64_t beginNs = ring ? nowNs() : 0;
    std::memcpy(transfer.to, transfer.from, transfer.bytes);
    if (ring)
      ring->record(ring->workers() - 1, {index, i | traceCopyBit, beginNs, nowNs()});
    if (around)
      (*around)(index, i, false);
    announce(copiesDone, i + 1);
  }
}

void CopyQueue::loop() {
  for (uint32_t seen = 0;;) {
    awaitCount(generation, seen + 1, spins);
    ++seen;
    if (stopping)
      return;
    run();
  }
}

} // namespace sluice
