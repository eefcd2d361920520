#pragma once
// Runs a program of a plan: launches in order, each split by chunks over the team.
// Addresses are resolved once, at creation; running allocates nothing.

#include "runtime/Arenas.h"
#include "runtime/CommQueue.h"
#include "runtime/CopyQueue.h"
#include "runtime/KernelTable.h"
#include "runtime/Plan.h"
#include "runtime/ThreadTeam.h"
#include "runtime/Trace.h"

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

namespace sluice {

/// Called on worker 0, all others waiting, before (true) and after every launch, with the
/// indices of program and launch in the plan.
using LaunchHook = std::function<void(uint32_t, uint32_t, bool)>;

class Executor {
public:
  /// `program` is an index of plan.programs. The plan, the kernels and the reservations
  /// outlive the executor. `rank`: of the plan's.
  Executor(const Plan &plan, uint32_t program, const KernelTable &kernels,
           const Arenas &arenas, int threads, int rank = 0);

  bool hasCopies() const { return !transfers.empty(); }
  bool hasCollectives() const { return !collectives.empty(); }

  /// What runs beside the launches and who watches; may be null, the hooks empty too.
  struct Queues {
    CopyQueue *copies = nullptr; ///< needed where the program has copies
    CommQueue *comm = nullptr;   ///< needed where it has collectives
    TraceRing *trace = nullptr;
    const LaunchHook *hook = nullptr;
    const CopyHook *copyHook = nullptr;
    const CollectiveHook *collectiveHook = nullptr;
    int64_t update = 0; ///< for errors of collectives
  };
  /// The first error of a collective: nothing of what was computed may be used then.
  Status run(ThreadTeam &team, const Queues &queues);

private:
  struct Operand {
    uint8_t *address; // of worker 0, unit 0
    uint64_t workerStride, unitStride;
  };
  struct Stage {
    KernelFn kernel;
    uint32_t firstOperand, operandCount;
    size_t firstParam;
    int64_t unitScale;
    int64_t firstUnit, units; // its part of the launch; 0 units: all of it
    bool fixed;               // the addresses depend on neither worker nor chunk
  };
  struct Launch {
    uint32_t firstStage, stageCount;
    int64_t units, chunk, chunks;
    bool parallel;       // split over the workers; else worker 0 runs it alone
    bool barrierAfter;   // the next launch may run on another worker
    bool signal;         // copies or collectives wait for it
    uint32_t waitCopies; // copies that must be done before it
    uint32_t waitCollectives;
  };
  /// Chunks a worker has still to do; others take from it when they are done with theirs.
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  struct alignas(64) Scratch {
    std::vector<void *> addresses;
  };

  void addLaunch(const fbs::Launch &launch, const KernelTable &kernels,
                 const Arenas &arenas);
  void addStage(const fbs::Stage &stage, const KernelTable &kernels,
                const Arenas &arenas);
  void addCollective(const fbs::Collective &collective, const Arenas &arenas, int rank,
                     int ranks);
  void openShare(int worker, size_t parallelIndex);
  void runTeamOrAlone(TraceRing *trace, const LaunchHook *hook);
  void runLaunches(int worker);
  void callHook(size_t launch, bool isBefore, int worker);
  void runShared(const Launch &launch, size_t parallelIndex, int worker);
  void runStage(const Stage &stage, int64_t begin, int64_t end, int worker);
  void runParts(const Launch &launch, int64_t begin, int64_t end, int worker);
  void runChunk(const Launch &launch, int64_t chunk, int worker);

  uint32_t programIndex;
  int threads;
  std::vector<Launch> launches;
  std::vector<const Launch *> parallelLaunches;
  std::vector<Stage> stages;
  std::vector<Operand> operands;
  std::vector<void *> fixedAddresses; // parallel to `operands`
  std::vector<int64_t> params;
  std::vector<QueuedTransfer> transfers;
  std::vector<QueuedCollective> collectives;
  std::unique_ptr<Share[]> shares; // [2][threads]: launches in turn use one half
  std::vector<Scratch> scratch;    // per worker
  ThreadTeam *team = nullptr;
  CopyQueue *copyQueue = nullptr;
  CommQueue *commQueue = nullptr;
  TraceRing *trace = nullptr;
  const LaunchHook *hook = nullptr; // null in all but tests
};

} // namespace sluice
