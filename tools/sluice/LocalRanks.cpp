#include "tools/sluice/LocalRanks.h"

#include "runtime/comm/LocalGroup.h"

#include <chrono>
#include <system_error>

namespace sluice::cli {

Result<std::unique_ptr<LocalRanks>> LocalRanks::start(const Plan &plan, int threads,
                                                      const Work &work) {
  std::unique_ptr<LocalRanks> ranks(new LocalRanks);
  int count = static_cast<int>(plan.ranks());
  if (count == 1)
    return ranks;
  CommOptions options;
  options.timeout =
      std::chrono::milliseconds(static_cast<int64_t>(plan.raw().timeout_s() * 1e3));
  int64_t busy = int64_t{count} * (threads + 1); // with the threads of collectives
  options.crowded = busy > static_cast<int64_t>(std::thread::hardware_concurrency());
  auto group = LocalGroup::create(count, options);
  if (!group)
    return group.status();
  auto own = (*group)->join(0);
  if (!own)
    return own.status();
  ranks->own = std::move(*own);
  ranks->results.resize(static_cast<size_t>(count - 1));
  for (int rank = 1; rank < count; ++rank) {
    auto end = (*group)->join(rank);
    if (!end)
      return end.status();
    std::shared_ptr<Communicator> comm = std::move(*end);
    Status &result = ranks->results[static_cast<size_t>(rank - 1)];
    try {
      ranks->threads.emplace_back([comm, work, &result] {
        result = work(*comm);
        if (!result.ok())
          comm->abort(result);
      });
    } catch (const std::system_error &error) {
      return Status::cannotRunHere("cannot start rank " + std::to_string(rank) + ": " +
                                   error.what());
    }
  }
  return ranks;
}

LocalRanks::~LocalRanks() {
  if (own)
    own->abort(Status::failed("training has ended"));
  (void)finish();
}

Status LocalRanks::finish() {
  for (std::thread &thread : threads)
    thread.join();
  threads.clear();
  for (const Status &result : results)
    if (!result.ok())
      return result;
  return Status::success();
}

} // namespace sluice::cli
