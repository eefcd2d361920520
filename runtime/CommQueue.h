#pragma once
// The collectives of a program, run one after the other by a thread of their own beside
// the launches, as CopyQueue does for copies. When one fails, those that wait for it or
// for later ones go on, and the error is the answer of finish(): what the program
// computes is worth nothing then. Nothing is allocated in steps that succeed.

#include "runtime/CopyQueue.h"
#include "runtime/comm/Communicator.h"

#include <vector>

namespace sluice {

struct QueuedCollective {
  /// Bytes that are copied on this rank, and zeros behind them.
  struct Move {
    uint8_t *to = nullptr;
    const uint8_t *from = nullptr; ///< the same as `to`: nothing is copied
    uint64_t bytes = 0, zeros = 0;
  };

  CommOp op = CommOp::allReduce; ///< or reduceScatter, allGather
  SumType type = SumType::f32;
  uint32_t elementBytes = 4;
  std::vector<Part> parts;          ///< worked on in place
  std::vector<ElementRange> shards; ///< of the parts by rank; empty for allReduce
  std::vector<Move> before, after;
  std::string name;          ///< for errors
  uint32_t waitLaunches = 0; ///< launches that must be done before it begins
};

/// Called by the thread before (true) and after every collective, with the indices of
/// program and collective in the plan.
using CollectiveHook = CopyHook;

/// Marks the collectives among the launches of a trace.
constexpr uint32_t traceCollectiveBit = uint32_t(1) << 30;

class CommQueue {
public:
  /// `crowded`: there are more threads than processors, so waiting must not spin.
  static Result<std::unique_ptr<CommQueue>> create(Communicator &comm, bool crowded);
  ~CommQueue();
  CommQueue(const CommQueue &) = delete;
  CommQueue &operator=(const CommQueue &) = delete;

  /// What a run of a program is, in errors and traces.
  struct Run {
    /// Equal on all ranks, whichever program their window ends with.
    std::string_view program;
    uint32_t index = 0; ///< in the plan
    int64_t update = 0;
    TraceRing *trace = nullptr; ///< row `traceRow` is written
    int traceRow = 0;
    const CollectiveHook *hook = nullptr;
  };
  /// Starts on the collectives of a program, which stay valid until finish().
  void begin(std::span<const QueuedCollective> collectives, const Run &run);
  /// The first `count` launches are done.
  void launched(uint32_t count);
  /// Until the first `count` collectives are done, or one has failed; by any worker.
  void waitFor(uint32_t count) const;
  /// Until all are; the first error.
  Status finish();

private:
  CommQueue(Communicator &comm, bool crowded) : comm(comm), spins(crowded ? 16 : 2000) {}
  void loop();
  void runAll();
  Status runOne(const QueuedCollective &collective, uint32_t index);

  Communicator &comm;
  int spins;
  std::thread thread;
  std::span<const QueuedCollective> collectives;
  Run current;
  Status status;
  bool stopping = false;
  alignas(64) std::atomic<uint32_t> generation{0};
  alignas(64) std::atomic<uint32_t> launchesDone{0};
  alignas(64) std::atomic<uint32_t> collectivesDone{0};
};

} // namespace sluice
