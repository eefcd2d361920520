#pragma once
// The copies of a program, run one after the other by a thread of their own beside the
// launches. Both sides count what they have done and wait for the other's count. Nothing
// is allocated after creation.

#include "runtime/Status.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <thread>

namespace sluice {

class TraceRing;

struct QueuedTransfer {
  const uint8_t *from = nullptr;
  uint8_t *to = nullptr;
  uint64_t bytes = 0;
  uint32_t waitLaunches = 0; ///< launches that must be done before it begins
};

/// Called by the thread that copies before (true) and after every copy, with the indices
/// of program and copy in the plan.
using CopyHook = std::function<void(uint32_t, uint32_t, bool)>;

/// Marks the copies among the launches of a trace.
constexpr uint32_t traceCopyBit = uint32_t(1) << 31;

class CopyQueue {
public:
  /// `crowded`: there are more threads than processors, so waiting must not spin.
  static Result<std::unique_ptr<CopyQueue>> create(bool crowded);
  ~CopyQueue();
  CopyQueue(const CopyQueue &) = delete;
  CopyQueue &operator=(const CopyQueue &) = delete;

  /// Starts on the copies of a program, which stay valid until finish(). `trace` may be
  /// null; its last row is written. `hook` is null or empty in all but tests.
  void begin(std::span<const QueuedTransfer> transfers, TraceRing *trace,
             uint32_t program, const CopyHook *hook = nullptr);
  /// The first `count` launches are done.
  void launched(uint32_t count);
  /// Until the first `count` copies are done; by any worker.
  void waitFor(uint32_t count) const;
  /// Until all are.
  void finish() { waitFor(static_cast<uint32_t>(transfers.size())); }

private:
  explicit CopyQueue(bool crowded) : spins(crowded ? 16 : 2000) {}
  void loop();
  void run();

  int spins;
  std::thread thread;
  std::span<const QueuedTransfer> transfers;
  TraceRing *trace = nullptr;
  uint32_t program = 0;
  const CopyHook *hook = nullptr;
  bool stopping = false;
  alignas(64) std::atomic<uint32_t> generation{0};
  alignas(64) std::atomic<uint32_t> launchesDone{0};
  alignas(64) std::atomic<uint32_t> copiesDone{0};
};

} // namespace sluice
