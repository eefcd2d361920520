#pragma once
// Ranks that are threads of one process. They read each other's memory: a collective is
// two meetings, one when all have brought their addresses, one when all have done their
// share of the elements.

#include "runtime/comm/Communicator.h"
#include "runtime/comm/MessageCursor.h"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

namespace sluice {

class LocalGroup : public std::enable_shared_from_this<LocalGroup> {
public:
  static Result<std::shared_ptr<LocalGroup>> create(int ranks,
                                                    const CommOptions &options = {});

  int size() const { return static_cast<int>(ranks.size()); }

  /// The end of a rank, for one thread at a time; taken once. It keeps the group alive.
  /// When it is destroyed, others that wait for the rank or will do so get an error.
  Result<std::unique_ptr<Communicator>> join(int rank);

private:
  friend class LocalCommunicator;

  /// Stages of a send or receive.
  static constexpr uint32_t waiting = 0, matched = 1, transferred = 2;

  struct Rank {
    bool joined = false;
    bool left = false;
    const CommCall *call = nullptr;     ///< the collective that it is in
    const CommCall *transfer = nullptr; ///< the send or receive that it is in
    std::atomic<uint32_t> stage{0};     ///< of `transfer`
    std::vector<MessageCursor> cursors; ///< into the message of every rank
    std::vector<const uint8_t *> sources;
  };

  LocalGroup(int ranks, const CommOptions &options);

  Status perform(int rank, const CommCall &call);
  void abort(int rank, const Status &reason);
  Status state() const;
  void leave(int rank);

  Status meet(int rank, const CommCall &call);
  void part();
  Status transfer(int rank, const CommCall &call);
  Status awaitPeer(std::unique_lock<std::mutex> &lock, Rank &own, const CommCall &call);
  Status checkArrived() const;
  std::vector<int> missing() const;

  void sumShare(int rank, const CommCall &call, ElementRange range, bool toAll);
  void gather(int rank, const CommCall &call);

  /// With the lock held.
  Status fail(Status reason);
  void wake();
  /// Looks for a moment, without the lock, whether `word` is no longer `old`; gives up
  /// earlier when the group fails, if asked to.
  bool spin(const std::atomic<uint32_t> &word, uint32_t old, bool untilFailed) const;

  CommOptions options;
  std::vector<Rank> ranks;
  mutable std::mutex mutex;
  std::condition_variable changed;
  int sleepers = 0;
  int arrived = 0, done = 0, gone = 0;
  Status error;
  std::atomic<bool> failed{false};
  alignas(64) std::atomic<uint32_t> meetings{0};
  alignas(64) std::atomic<uint32_t> partings{0};
};

} // namespace sluice
