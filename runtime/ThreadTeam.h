#pragma once
// One team of workers per session. The caller is worker 0; the others spin for some
// microseconds between jobs and barriers, then sleep. Nothing is allocated after
// creation.

#include "runtime/Status.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace sluice {

class ThreadTeam {
public:
  using Job = void (*)(void *context, int worker);

  static Result<std::unique_ptr<ThreadTeam>> create(int threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam &) = delete;
  ThreadTeam &operator=(const ThreadTeam &) = delete;

  int size() const { return threads; }

  /// Runs job(context, w) for every worker w, 0 on the calling thread; returns when all
  /// have.
  void run(Job job, void *context);

  /// Inside a job: waits until every worker is here.
  void barrier();

private:
  explicit ThreadTeam(int threads);
  void workerLoop(int worker);
  /// Until `word` differs from `old`.
  void waitForChange(const std::atomic<uint32_t> &word, uint32_t old) const;

  int threads;
  int spins;
  std::vector<std::thread> others;
  Job job = nullptr;
  void *context = nullptr;
  bool stopping = false;
  alignas(64) std::atomic<uint32_t> generation{0};
  alignas(64) std::atomic<uint32_t> arrived{0};
  alignas(64) std::atomic<uint32_t> phase{0};
};

} // namespace sluice
