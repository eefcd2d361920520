#pragma once
// Collectives over messages between ranks, whoever carries them (MPI, or a transport of
// the caller's).
//
// A call begins with a header from each rank to every other: so a missing rank is known
// to all that wait, as is one that is somewhere else. Short messages travel with it.
// Longer ones are cut into shards, one for each rank, and these into pieces: every rank
// sends its piece of a shard to the owner of the shard, who sums the pieces as the tree
// says and sends the sum to all. That moves 2 (N - 1) / N of the message in and out of
// each rank, the least there is, and the next pieces are under way while the last ones
// are gathered.

#include "runtime/comm/MessageHeader.h"
#include "runtime/include/sluice/transport.h"

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace sluice {

struct TransportOptions {
  CommOptions comm;
  CommKind kind = CommKind::custom;
  /// Called once at the end, without an error (true) or after one (false).
  std::function<void(bool)> close;
  /// Wait at the end for the others to come to theirs, for ten timeouts.
  bool closeTogether = false;
};

/// Refused when the transport lacks a call or its rank and size make no sense.
Result<std::unique_ptr<Communicator>> overTransport(const sluice_transport &transport,
                                                    TransportOptions options);

/// As the above makes it.
class MessageCommunicator final : public Communicator {
public:
  MessageCommunicator(const sluice_transport &transport, TransportOptions options);
  ~MessageCommunicator() override;

  void abort(const Status &reason) override;
  Status state() const override;
  void noteCrowded() override { options.comm.crowded = true; }
  uint64_t scratchBytes() const override;

protected:
  Status perform(const CommCall &call) override;

private:
  using Clock = std::chrono::steady_clock;
  /// Operations with each rank that are counted together. Two of those for pieces: even
  /// and odd ones.
  enum Group : uint32_t {
    headerOut,
    headerIn,
    scatterOut,
    scatterIn = scatterOut + 2,
    gatherOut = scatterIn + 2,
    gatherIn = gatherOut + 2,
    noteOut = gatherIn + 2,
    noteIn
  };
  enum Channel : int { noteChannel, headerChannel, scatterChannel, gatherChannel };
  /// Pairs have channels of their own.
  static constexpr int pairOffset = 3;

  /// What comes first for a piece: sums, or bytes from the root, or neither.
  enum class First : uint8_t { sum, root, none };
  struct Walk {
    const CommCall &call;
    std::span<const ElementRange> shards;
    First first = First::none;
    bool gather = false;
    uint64_t steps = 0;
  };
  struct Range {
    uint64_t begin = 0;
    uint64_t bytes = 0;
  };

  // Requests and failure (MessageCommunicator.cpp).
  uint32_t request(uint32_t group, int peer) const {
    return group * static_cast<uint32_t>(size()) + static_cast<uint32_t>(peer);
  }
  Status sent(uint32_t group, int to, const void *data, uint64_t bytes, int channel);
  Status posted(uint32_t group, int from, void *data, uint64_t room, int channel);
  Status transportError(const char *doing, int peer, int code);
  /// Until the operations of a group are done. Unless `whole`, the timeout starts anew
  /// with each that is.
  Status await(uint32_t group, const CommCall &call, bool whole = false);
  Status testGroup(uint32_t group, int &left, int &finished);
  Status lookForNotes();
  Status waitedTooLong(uint32_t group, const CommCall &call);
  void rest(int round);
  void cancelAll(bool notesToo);
  Status fail(Status reason);
  void announce();
  void leave();

  // Calls (MessageCollectives.cpp).
  Status run(const CommCall &call);
  Status meet(const CommCall &call);
  Status lookWhoLeft(const CommCall &call);
  Status compareHeaders(const CommCall &call);
  uint64_t packHeader(const CommCall &call);
  void takeInlined(const CommCall &call);
  Status pair(const CommCall &call);
  Status walk(const CommCall &call);
  Status scatter(const Walk &walk, uint64_t step);
  Status finishScatter(const Walk &walk, uint64_t step);
  Status gather(const Walk &walk, uint64_t step);
  Status finishGather(const Walk &walk, uint64_t step);
  Range piece(const Walk &walk, int rank, uint64_t step) const;
  /// The bytes of rank r lie at others + r * stride, the own ones in the message.
  void sumInto(const CommCall &call, Range range, const uint8_t *others, uint64_t stride);
  Status sendRange(uint32_t group, int to, const CommCall &call, Range range,
                   uint8_t *scratch, int channel);
  Status receiveRange(uint32_t group, int from, const CommCall &call, Range range,
                      uint8_t *scratch, int channel);
  void unpack(const CommCall &call, Range range, const uint8_t *scratch);

  /// A header and the short message that travels with it.
  static constexpr uint64_t headerRoom = 2048;

  /// Room for the piece of a rank; even and odd steps have their own.
  uint8_t *inPiece(uint64_t step, int rank) { return inPieces.data() + at(step, rank); }
  uint8_t *outPiece(uint64_t step, int rank) { return outPieces.data() + at(step, rank); }
  uint64_t at(uint64_t step, int rank) const {
    return ((step % 2) * static_cast<uint64_t>(size()) + static_cast<uint64_t>(rank)) *
           pieceBytes;
  }
  const MessageHeader &headerOf(int rank) const;
  const uint8_t *inlinedOf(int rank) const;

  sluice_transport transport;
  TransportOptions options;
  uint64_t pieceBytes;
  std::chrono::milliseconds patience;   ///< the timeout, but at the end
  std::vector<uint8_t> pendingRequests; ///< by request
  std::vector<uint8_t> headersIn, headerOwn, notesIn;
  std::vector<uint8_t> inPieces, outPieces;
  std::vector<ElementRange> evenShards;
  std::vector<const uint8_t *> sources;
  static constexpr size_t noteRoom = 512;
  char note[noteRoom] = {};

  int crowdedWaits = 0; ///< so many waits more sleep at once
  std::mutex calls;     ///< held through every call of the transport
  bool announced = false;
  mutable std::mutex stateMutex;
  Status error; ///< under stateMutex
  std::atomic<bool> failed{false};
};

} // namespace sluice
