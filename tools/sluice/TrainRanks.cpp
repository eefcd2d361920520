#include "tools/sluice/TrainRanks.h"

#include "runtime/comm/LocalGroup.h"
#include "runtime/comm/MpiCommunicator.h"
#include "runtime/comm/TcpCommunicator.h"

#include <chrono>
#include <system_error>

namespace sluice::cli {

/// Processes are started one after another, by hand perhaps.
static constexpr std::chrono::seconds meetingTimeout{60};

bool isMeeting(const std::string &kind) {
  return kind.starts_with("tcp:") || kind.starts_with("file:");
}

Result<std::unique_ptr<TrainRanks>> TrainRanks::start(const Plan &plan,
                                                      const std::string &kind, int rank,
                                                      int threads, const Work &work) {
  std::unique_ptr<TrainRanks> ranks(new TrainRanks);
  int count = static_cast<int>(plan.ranks());
  CommOptions options;
  options.timeout =
      std::chrono::milliseconds(static_cast<int64_t>(plan.raw().timeout_s() * 1e3));
  if (kind == "mpi") {
    auto opened = openMpi({options, {}});
    if (!opened)
      return opened.status();
    ranks->own = std::move(*opened);
    return ranks;
  }
  if (isMeeting(kind)) {
    auto patience = std::max<std::chrono::milliseconds>(options.timeout, meetingTimeout);
    auto opened = openTcp({kind, rank, count, patience}, options);
    if (!opened)
      return opened.status();
    ranks->own = std::move(*opened);
    return ranks;
  }
  if (count == 1)
    return ranks;
  int64_t busy = int64_t{count} * (threads + 1); // with the threads of collectives
  options.crowded = busy > static_cast<int64_t>(std::thread::hardware_concurrency());
  if (Status status = ranks->startLocal(count, options, work); !status.ok())
    return status;
  return ranks;
}

Status TrainRanks::startLocal(int count, const CommOptions &options, const Work &work) {
  auto group = LocalGroup::create(count, options);
  if (!group)
    return group.status();
  auto first = (*group)->join(0);
  if (!first)
    return first.status();
  own = std::move(*first);
  results.resize(static_cast<size_t>(count - 1));
  for (int rank = 1; rank < count; ++rank) {
    auto end = (*group)->join(rank);
    if (!end)
      return end.status();
    std::shared_ptr<Communicator> comm = std::move(*end);
    Status &result = results[static_cast<size_t>(rank - 1)];
    try {
      threads.emplace_back([comm, work, &result] {
        result = work(*comm);
        if (!result.ok())
          comm->abort(result);
      });
    } catch (const std::system_error &error) {
      return Status::cannotRunHere("cannot start rank " + std::to_string(rank) + ": " +
                                   error.what());
    }
  }
  return Status::success();
}

TrainRanks::~TrainRanks() {
  if (own && !hasFinished)
    own->abort(Status::failed("training has ended"));
  (void)join();
}

Status TrainRanks::failed(const Status &status) {
  if (own)
    own->abort(status);
  return status;
}

Status TrainRanks::join() {
  for (std::thread &thread : threads)
    thread.join();
  threads.clear();
  for (const Status &result : results)
    if (!result.ok())
      return result;
  return Status::success();
}

Status TrainRanks::finish() {
  hasFinished = true;
  return join();
}

} // namespace sluice::cli
