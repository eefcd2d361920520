#include "runtime/comm/LocalGroup.h"

#include "runtime/comm/CallText.h"
#include "runtime/comm/SumTree.h"

#include <cstring>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sluice {

class LocalCommunicator final : public Communicator {
public:
  LocalCommunicator(std::shared_ptr<LocalGroup> shared, int rank)
      : Communicator(CommKind::local, rank, shared->size()), group(std::move(shared)) {}
  ~LocalCommunicator() override { group->leave(rank()); }

  void abort(const Status &reason) override { group->abort(rank(), reason); }
  Status state() const override { return group->state(); }

protected:
  Status perform(const CommCall &call) override { return group->perform(rank(), call); }

private:
  std::shared_ptr<LocalGroup> group;
};

LocalGroup::LocalGroup(int count, const CommOptions &options)
    : options(options), ranks(static_cast<size_t>(count)) {
  for (Rank &rank : ranks) {
    rank.cursors.resize(ranks.size());
    rank.sources.resize(ranks.size());
  }
}

Result<std::shared_ptr<LocalGroup>> LocalGroup::create(int ranks,
                                                       const CommOptions &options) {
  if (ranks < 1 || ranks > maxRanks)
    return Status::usage("a group of " + std::to_string(ranks) +
                         " ranks, expected 1 to " + std::to_string(maxRanks));
  return std::shared_ptr<LocalGroup>(new LocalGroup(ranks, options));
}

Result<std::unique_ptr<Communicator>> LocalGroup::join(int rank) {
  if (rank < 0 || rank >= size())
    return Status::usage("rank " + std::to_string(rank) + " in a group of " +
                         std::to_string(size()));
  std::lock_guard lock(mutex);
  if (ranks[rank].joined)
    return Status::usage("rank " + std::to_string(rank) + " of " +
                         std::to_string(size()) + " has been taken before");
  ranks[rank].joined = true;
  return std::unique_ptr<Communicator>(new LocalCommunicator(shared_from_this(), rank));
}

// ---- Waiting and failing ----

void LocalGroup::wake() {
  if (sleepers > 0)
    changed.notify_all();
}

Status LocalGroup::fail(Status reason) {
  if (error.ok()) {
    error = std::move(reason);
    failed.store(true, std::memory_order_release);
    changed.notify_all();
  }
  return error;
}

void LocalGroup::abort(int rank, const Status &reason) {
  std::lock_guard lock(mutex);
  (void)fail(Status::failed(ranksText({rank}, size()) + " gave up: " + reason.message));
}

Status LocalGroup::state() const {
  std::lock_guard lock(mutex);
  return error;
}

void LocalGroup::leave(int rank) {
  std::lock_guard lock(mutex);
  ranks[rank].left = true;
  ++gone;
  if (!error.ok())
    return;
  // It is in no call, so whoever is has not met it.
  const CommCall *waiting = nullptr;
  for (const Rank &other : ranks) {
    if (other.call)
      waiting = other.call;
    if (other.transfer && other.transfer->peer == rank)
      waiting = other.transfer;
  }
  if (waiting)
    (void)fail(
        Status::failed(ranksText({rank}, size()) + " left before " + callText(*waiting)));
}

static void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

/// The lock is held for moments only, so that going to sleep for it, as lock() does at
/// once, takes longer than it.
static std::unique_lock<std::mutex> lockSoon(std::mutex &mutex) {
  std::unique_lock lock(mutex, std::defer_lock);
  for (int i = 0; i < 200; ++i, pause())
    if (lock.try_lock())
      return lock;
  lock.lock();
  return lock;
}

bool LocalGroup::spin(const std::atomic<uint32_t> &word, uint32_t old,
                      bool untilFailed) const {
  const int spins = options.crowded ? 16 : 300;
  for (int i = 0; i < spins + 100; ++i) {
    if (word.load(std::memory_order_acquire) != old)
      return true;
    if (untilFailed && failed.load(std::memory_order_acquire))
      break;
    // Whoever is waited for may be the next one in line for this core.
    if (i < spins)
      pause();
    else
      std::this_thread::yield();
  }
  return false;
}

std::vector<int> LocalGroup::missing() const {
  std::vector<int> list;
  for (int r = 0; r < size(); ++r)
    if (!ranks[r].call)
      list.push_back(r);
  return list;
}

/// All have come: to the same call?
Status LocalGroup::checkArrived() const {
  for (int r = 1; r < size(); ++r)
    if (!callsMatch(*ranks[0].call, *ranks[r].call))
      return callsDiffer(0, *ranks[0].call, r, *ranks[r].call, size());
  return Status::success();
}

/// Returns success when all ranks have: then each of them does its share, whatever
/// happens meanwhile, and none leaves before part(), since the others use its memory.
Status LocalGroup::meet(int rank, const CommCall &call) {
  std::unique_lock lock = lockSoon(mutex);
  if (!error.ok())
    return error;
  if (gone > 0) {
    std::vector<int> left;
    for (int r = 0; r < size(); ++r)
      if (ranks[r].left)
        left.push_back(r);
    return fail(
        Status::failed(ranksText(left, size()) + " left before " + callText(call)));
  }
  ranks[rank].call = &call;
  if (++arrived == size()) {
    if (Status status = checkArrived(); !status.ok())
      return fail(std::move(status));
    arrived = 0;
    meetings.fetch_add(1, std::memory_order_release);
    wake();
    return Status::success();
  }
  uint32_t old = meetings.load(std::memory_order_relaxed);
  auto deadline = std::chrono::steady_clock::now() + options.timeout;
  lock.unlock();
  if (spin(meetings, old, true))
    return Status::success();
  lock.lock();
  ++sleepers;
  changed.wait_until(lock, deadline, [&] { return meetings != old || !error.ok(); });
  --sleepers;
  if (meetings != old)
    return Status::success();
  if (!error.ok())
    return error;
  return fail(missingRanks(missing(), size(), call, options.timeout));
}

/// The others only compute between meet() and part(), so this needs no deadline.
void LocalGroup::part() {
  std::unique_lock lock = lockSoon(mutex);
  if (++done == size()) {
    done = 0;
    for (Rank &rank : ranks)
      rank.call = nullptr;
    partings.fetch_add(1, std::memory_order_release);
    wake();
    return;
  }
  uint32_t old = partings.load(std::memory_order_relaxed);
  lock.unlock();
  if (spin(partings, old, false))
    return;
  lock.lock();
  ++sleepers;
  changed.wait(lock, [&] { return partings != old; });
  --sleepers;
}

// ---- Collectives ----

/// These bytes of one message into another.
static void copy(const CommCall &from, const CommCall &to, uint64_t begin,
                 uint64_t bytes) {
  if (bytes == 0)
    return;
  MessageCursor source, target;
  source.seek(from.parts, begin);
  target.seek(to.parts, begin);
  while (bytes > 0) {
    uint64_t some = std::min({bytes, source.contiguous(), target.contiguous()});
    std::memcpy(target.data(), source.data(), some);
    source.advance(some);
    target.advance(some);
    bytes -= some;
  }
}

Status LocalGroup::perform(int rank, const CommCall &call) {
  if (call.op == CommOp::send || call.op == CommOp::receive)
    return transfer(rank, call);
  if (Status status = meet(rank, call); !status.ok())
    return status;
  uint64_t elements = call.bytes / call.elementBytes;
  switch (call.op) {
  case CommOp::allReduce:
    sumShare(rank, call, evenShard(elements, rank, size()), true);
    break;
  case CommOp::reduceScatter:
    sumShare(rank, call, call.shards[rank], false);
    break;
  case CommOp::allGather:
    gather(rank, call);
    break;
  case CommOp::broadcast:
    if (rank != call.peer)
      copy(*ranks[call.peer].call, call, 0, call.bytes);
    break;
  default:
    break;
  }
  part();
  return Status::success();
}

void LocalGroup::sumShare(int rank, const CommCall &call, ElementRange range,
                          bool toAll) {
  Rank &own = ranks[rank];
  uint64_t begin = range.begin * call.elementBytes;
  uint64_t left = (range.end - range.begin) * call.elementBytes;
  if (left == 0)
    return;
  for (int r = 0; r < size(); ++r)
    own.cursors[r].seek(ranks[r].call->parts, begin);
  alignas(64) uint8_t sum[sumBlockBytes];
  while (left > 0) {
    uint64_t bytes = std::min(left, sumBlockBytes);
    for (int r = 0; r < size(); ++r) {
      bytes = std::min(bytes, own.cursors[r].contiguous());
      own.sources[r] = own.cursors[r].data();
    }
    sumBlock(own.sources.data(), size(), sum, bytes, call.type);
    for (int r = 0; r < size(); ++r) {
      if (toAll || r == rank)
        std::memcpy(own.cursors[r].data(), sum, bytes);
      own.cursors[r].advance(bytes);
    }
    left -= bytes;
  }
}

void LocalGroup::gather(int rank, const CommCall &call) {
  for (int r = 0; r < size(); ++r)
    if (r != rank)
      copy(*ranks[r].call, call, call.shards[r].begin * call.elementBytes,
           (call.shards[r].end - call.shards[r].begin) * call.elementBytes);
}

// ---- Pairs ----

/// Until the other end has come.
Status LocalGroup::awaitPeer(std::unique_lock<std::mutex> &lock, Rank &own,
                             const CommCall &call) {
  auto deadline = std::chrono::steady_clock::now() + options.timeout;
  lock.unlock();
  spin(own.stage, waiting, true);
  lock.lock();
  ++sleepers;
  changed.wait_until(lock, deadline, [&] { return own.stage != waiting || !error.ok(); });
  --sleepers;
  if (own.stage != waiting)
    return Status::success();
  if (!error.ok())
    return error;
  return fail(missingRanks({call.peer}, size(), call, options.timeout));
}

/// The later of the two finds the earlier one waiting. The receiver copies; the sender
/// stays until it has.
Status LocalGroup::transfer(int rank, const CommCall &call) {
  Rank &own = ranks[rank], &other = ranks[call.peer];
  std::unique_lock lock = lockSoon(mutex);
  if (!error.ok())
    return error;
  if (other.left)
    return fail(Status::failed(ranksText({call.peer}, size()) + " left before " +
                               callText(call)));
  own.transfer = &call;
  if (other.transfer && other.transfer->peer == rank) {
    if (!callsMatch(call, *other.transfer))
      return fail(callsDiffer(call.peer, *other.transfer, rank, call, size()));
    own.stage = other.stage = matched;
    wake();
  } else {
    own.stage = waiting;
    if (Status status = awaitPeer(lock, own, call); !status.ok())
      return status;
  }
  if (call.op == CommOp::receive) {
    lock.unlock();
    copy(*other.transfer, call, 0, call.bytes);
    lock.lock();
    own.transfer = other.transfer = nullptr;
    other.stage = transferred;
    wake();
    return Status::success();
  }
  lock.unlock();
  spin(own.stage, matched, false);
  lock.lock();
  ++sleepers;
  changed.wait(lock, [&] { return own.stage == transferred; });
  --sleepers;
  return Status::success();
}

} // namespace sluice
