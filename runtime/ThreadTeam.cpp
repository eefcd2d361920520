#include "runtime/ThreadTeam.h"

#include "runtime/Announce.h"
#include "runtime/FloatMode.h"

#include <system_error>

namespace sluice {

static void pauseBriefly() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

ThreadTeam::ThreadTeam(int threads) : threads(threads) {
  // With more workers than processors, spinning keeps the one that has work from running.
  bool crowded = threads > static_cast<int>(std::thread::hardware_concurrency());
  spins = crowded ? 16 : 2000;
}

Result<std::unique_ptr<ThreadTeam>> ThreadTeam::create(int threads) {
  std::unique_ptr<ThreadTeam> team(new ThreadTeam(threads));
  team->others.reserve(static_cast<size_t>(threads));
  for (int worker = 1; worker < threads; ++worker) {
    try {
      team->others.emplace_back(&ThreadTeam::workerLoop, team.get(), worker);
    } catch (const std::system_error &error) {
      return Status::cannotRunHere("cannot start " + std::to_string(threads) +
                                   " threads: " + error.what());
    }
  }
  return team;
}

ThreadTeam::~ThreadTeam() {
  stopping = true;
  announceNext(generation);
  for (std::thread &thread : others)
    thread.join();
}

void ThreadTeam::waitForChange(const std::atomic<uint32_t> &word, uint32_t old) const {
  for (int i = 0; i < spins; ++i) {
    if (word.load(std::memory_order_acquire) != old)
      return;
    pauseBriefly();
  }
  while (word.load(std::memory_order_acquire) == old)
    word.wait(old, std::memory_order_acquire);
}

void ThreadTeam::barrier() {
  if (threads == 1)
    return;
  // The phase cannot move on before this worker has arrived.
  uint32_t current = phase.load(std::memory_order_relaxed);
  uint32_t before = arrived.fetch_add(1, std::memory_order_acq_rel);
  if (before + 1 < static_cast<uint32_t>(threads)) {
    waitForChange(phase, current);
    return;
  }
  arrived.store(0, std::memory_order_relaxed);
  announce(phase, current + 1);
}

void ThreadTeam::run(Job newJob, void *newContext) {
  job = newJob;
  context = newContext;
  if (threads > 1)
    announceNext(generation);
  newJob(newContext, 0);
  barrier();
}

void ThreadTeam::workerLoop(int worker) {
  FloatMode mode;
  for (uint32_t seen = 0;;) {
    waitForChange(generation, seen);
    ++seen;
    if (stopping)
      return;
    job(context, worker);
    barrier();
  }
}

} // namespace sluice
