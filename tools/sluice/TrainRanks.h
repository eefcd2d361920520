#pragma once
// The ranks that train a plan: threads of this process, of which rank 0 is the caller, or
// processes, of which this is one: of an MPI job, or any that meet over TCP.

#include "runtime/PlanReader.h"
#include "runtime/comm/Communicator.h"

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace sluice::cli {

/// tcp:HOST:PORT or file:PATH.
bool isMeeting(const std::string &kind);

class TrainRanks {
public:
  /// What a rank other than 0 does, with its end of the group.
  using Work = std::function<Status(Communicator &)>;

  /// `kind`: local, mpi, or where ranks meet (TcpMeeting.h), this one being `rank`. Of
  /// local ranks the others are started on `work`; nothing is for a plan of one rank.
  /// `threads`: workers of each rank.
  static Result<std::unique_ptr<TrainRanks>> start(const Plan &plan,
                                                   const std::string &kind, int rank,
                                                   int threads, const Work &work);
  /// Ends the group, unless it has finished, and waits for local ranks.
  ~TrainRanks();

  /// Of this rank; null for a plan of one rank.
  Communicator *communicator() const { return own.get(); }
  bool leads() const { return !own || own->rank() == 0; }
  /// Why this rank ends, told to those that would wait for it.
  Status failed(const Status &status);
  /// Waits for local ranks; the first error that one of them has ended with.
  Status finish();

private:
  TrainRanks() = default;
  Status startLocal(int count, const CommOptions &options, const Work &work);
  Status join();

  std::unique_ptr<Communicator> own;
  std::vector<std::thread> threads;
  std::vector<Status> results; // by thread
  bool hasFinished = false;
};

} // namespace sluice::cli
