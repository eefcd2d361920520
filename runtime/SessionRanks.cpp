// A session as one rank of several: the group it belongs to, what its ranks have to agree
// on, and what they tell each other when a window is complete.

#include "runtime/Checksum.h"
#include "runtime/Session.h"
#include "runtime/StateShard.h"
#include "runtime/comm/Agree.h"
#include "runtime/comm/HostRanks.h"

#include <algorithm>
#include <cstring>

namespace sluice {

/// A micro-batch of a rank, and what a rank says of its part of a window: equal in size.
struct Session::LossRecord {
  float sum = 0, count = 0;
};
struct Session::WindowHead {
  int32_t microBatches = 0, unused = 0;
  int64_t samples = 0; // where its data goes on
};

static std::span<const std::byte> bytesOf(const uint64_t &value) {
  return std::as_bytes(std::span(&value, 1));
}

/// Before memory is reserved.
Status Session::checkRanks() const {
  Communicator *comm = options.communicator;
  if (!comm || comm->size() == planPtr->ranks())
    return Status::success();
  std::string has =
      std::to_string(planPtr->ranks()) + (planPtr->ranks() == 1 ? " rank" : " ranks");
  return Status::usage("the plan is for " + has + ", the communicator has " +
                       std::to_string(comm->size()) + "; compile with --ranks " +
                       std::to_string(comm->size()) + ", or start " + has);
}

Status Session::joinRanks() {
  if (!sharesUpdates())
    return Status::success();
  Communicator &comm = *options.communicator;
  // A plan of another build, seed or kind of kernel gives other numbers.
  std::span<const uint8_t> file = planPtr->file();
  uint64_t plan = fnv1a(file.data(), file.size());
  uint64_t seed = seedValue, level = static_cast<uint64_t>(kernels.level);
  Status status = agree(comm, bytesOf(plan), "plan");
  if (status.ok())
    status = agree(comm, bytesOf(seed), "seed");
  if (status.ok())
    status = agree(comm, bytesOf(level), "kernel level");
  if (!status.ok())
    return status;
  size_t ranks = static_cast<size_t>(comm.size());
  size_t words = headWords + static_cast<size_t>(planPtr->accumulate());
  windowRecords.resize(ranks * words);
  for (size_t r = 0; r < ranks; ++r)
    windowShards.push_back({r * words, (r + 1) * words});
  if (planPtr->hasCollectives()) {
    Result<int> here = ranksOnThisHost(comm);
    if (!here)
      return here.status();
    int threads = (team->size() + 1) * *here;
    bool crowded = threads > static_cast<int>(std::thread::hardware_concurrency());
    if (crowded)
      comm.noteCrowded();
    auto queue = CommQueue::create(comm, crowded);
    if (!queue)
      return queue.status();
    commQueue = std::move(*queue);
  }
  return Status::success();
}

Status Session::checkMayTrain() const {
  if (planPtr->ranks() > 1 && !options.communicator)
    return Status::usage("the plan is for " + std::to_string(planPtr->ranks()) +
                         " ranks, the session has no communicator: it can evaluate and "
                         "infer, but not train");
  return broken;
}

Status Session::agreeOnState() {
  if (!sharesUpdates())
    return Status::success();
  uint64_t hash = fnv1a(nullptr, 0);
  for (const fbs::StateTensor *tensor : *planPtr->raw().state())
    if (tensor->saved() && !isShard(*tensor)) // shards differ, and come from one file
      hash = hash * 0x100000001b3 ^ fnv1a(tensorData(*tensor), tensor->size());
  for (int64_t value : {updatesDone, samplesDone})
    hash = hash * 0x100000001b3 ^ static_cast<uint64_t>(value);
  return agree(*options.communicator, bytesOf(hash), "state (weights or checkpoint)");
}

int64_t Session::nextSample() const {
  if (pending > 0 || !sharesUpdates())
    return samplesDone;
  return windowFirst + rank() * planPtr->accumulate() * planPtr->batch();
}

void Session::noteLoss(const StepResult &result) {
  if (!sharesUpdates())
    return;
  LossRecord record{static_cast<float>(result.lossSum),
                    static_cast<float>(result.lossCount)};
  uint64_t *own = &windowRecords[windowShards[options.communicator->rank()].begin];
  static_assert(sizeof record == sizeof *own);
  std::memcpy(own + headWords + pending, &record, sizeof record);
}

/// The losses of all ranks are summed as one rank would: micro-batch by micro-batch.
Status Session::closeWindow(int64_t microBatches) {
  if (!sharesUpdates())
    return Status::success();
  Communicator &comm = *options.communicator;
  WindowHead head{static_cast<int32_t>(microBatches), 0, samplesDone};
  static_assert(sizeof head == headWords * sizeof(uint64_t));
  std::memcpy(&windowRecords[windowShards[comm.rank()].begin], &head, sizeof head);
  const Part part{windowRecords.data(), windowRecords.size() * sizeof(uint64_t)};
  Status status = comm.allGather({&part, 1}, sizeof(uint64_t), windowShards,
                                 {"window", updatesDone, "losses", 0});
  if (!status.ok())
    return broken = status;
  windowLossSum = windowLossCount = 0;
  for (const ElementRange &shard : windowShards) {
    const uint64_t *words = &windowRecords[shard.begin];
    std::memcpy(&head, words, sizeof head);
    samplesDone = std::max(samplesDone, head.samples);
    for (int32_t i = 0; i < head.microBatches && i < planPtr->accumulate(); ++i) {
      LossRecord record;
      std::memcpy(&record, words + headWords + i, sizeof record);
      windowLossSum += record.sum;
      windowLossCount += record.count;
    }
  }
  windowFirst = samplesDone;
  return Status::success();
}

} // namespace sluice
