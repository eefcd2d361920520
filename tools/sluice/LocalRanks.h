#pragma once
// The ranks of a plan as threads of this process: rank 0 is the caller, the others run
// beside it.

#include "runtime/PlanReader.h"
#include "runtime/comm/Communicator.h"

#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace sluice::cli {

class LocalRanks {
public:
  /// What a rank other than 0 does, with its end of the group.
  using Work = std::function<Status(Communicator &)>;

  /// Starts the others; nothing is started for a plan of one rank. `threads`: workers of
  /// each rank.
  static Result<std::unique_ptr<LocalRanks>> start(const Plan &plan, int threads,
                                                   const Work &work);
  /// Ends the group and waits for all.
  ~LocalRanks();

  /// Of rank 0; null for a plan of one rank.
  Communicator *communicator() const { return own.get(); }
  /// Waits for the others. Their first error, if rank 0 has none of its own.
  Status finish();

private:
  LocalRanks() = default;

  std::unique_ptr<Communicator> own;
  std::vector<std::thread> threads;
  std::vector<Status> results; // by thread
};

} // namespace sluice::cli
