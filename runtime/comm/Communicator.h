#pragma once
// What ranks do together. A rank is one copy of a training run; a communicator is one
// rank's end of a group of them. Messages are lists of parts in memory, worked on in
// place; sums follow one fixed tree over the ranks, so that their bits depend neither on
// the kind of communicator nor on how a message is cut into parts.
//
// The tree is that of `as_ranks` (docs/numerics.md): in round s = 0, 1, ... each rank r
// that is a multiple of 2^(s+1) adds the sum of rank r + 2^s, if there is one, as the
// right operand: five ranks give ((x0 + x1) + (x2 + x3)) + x4.
//
// Every rank of a group makes the same calls in the same order. A call that the others do
// not make, or make with another label, size or type, is an error on all of them, as is a
// rank that does not come within the timeout. The first error ends the group: whoever
// waits is woken, and all further calls return that error. Calls allocate nothing unless
// they fail.

#include "runtime/Status.h"

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace sluice {

enum class CommKind : uint8_t { local, mpi, nccl, tcp, custom };

/// "local", "mpi", "nccl", "tcp", "custom": as the command line spells them.
std::string_view commKindName(CommKind kind);

enum class SumType : uint8_t { f32, f64, i64 };

/// A piece of a message; the parts of a list make one message, in order. No element lies
/// in two parts, and those of sums are aligned to their size.
struct Part {
  void *data = nullptr;
  uint64_t bytes = 0;
};

/// Elements [begin, end) of a message.
struct ElementRange {
  uint64_t begin = 0;
  uint64_t end = 0;

  bool operator==(const ElementRange &) const = default;
};

/// What a call is for: equal on all ranks, and named in errors. The texts are not copied.
struct CallLabel {
  std::string_view program;
  int64_t update = 0; ///< or another number that says which run of the program it is
  std::string_view name;
  uint32_t index = 0; ///< of the collective in the program
};

enum class CommOp : uint8_t {
  allReduce,
  reduceScatter,
  allGather,
  broadcast,
  send,
  receive,
  barrier
};

/// A call as implementations see it; its sizes have been checked.
struct CommCall {
  CommOp op = CommOp::barrier;
  SumType type = SumType::f32; ///< of sums
  uint32_t elementBytes = 1;
  int peer = 0; ///< the root of a broadcast, the other end of a send or receive
  std::span<const Part> parts = {};
  uint64_t bytes = 0;                        ///< of all parts
  std::span<const ElementRange> shards = {}; ///< by rank
  CallLabel label = {};
};

struct CommOptions {
  /// A call that others keep waiting for longer is an error.
  std::chrono::milliseconds timeout{60000};
  /// There are more busy threads than processors, so waiting must not spin.
  bool crowded = false;
};

class Communicator {
public:
  virtual ~Communicator() = default;
  Communicator(const Communicator &) = delete;
  Communicator &operator=(const Communicator &) = delete;

  int rank() const { return ownRank; }
  int size() const { return ranks; }
  CommKind kind() const { return ownKind; }

  /// Every element becomes the sum over the ranks.
  Status allReduce(std::span<const Part> parts, SumType type, const CallLabel &label);
  /// The elements of the own shard become sums over the ranks; the others keep their
  /// values. `shards` has a range for each rank, in ascending order, without overlap;
  /// empty ones and gaps are allowed.
  Status reduceScatter(std::span<const Part> parts, SumType type,
                       std::span<const ElementRange> shards, const CallLabel &label);
  /// The elements of every shard become those of the rank it belongs to.
  Status allGather(std::span<const Part> parts, uint32_t elementBytes,
                   std::span<const ElementRange> shards, const CallLabel &label);
  /// All bytes become those of rank `root`.
  Status broadcast(std::span<const Part> parts, int root, const CallLabel &label);
  /// To and from another rank, in pairs with equal labels and sizes; sending may wait for
  /// the receiver.
  Status send(std::span<const Part> parts, int to, const CallLabel &label);
  Status receive(std::span<const Part> parts, int from, const CallLabel &label);
  /// Returns when every rank is here.
  Status barrier(const CallLabel &label);

  /// Ends the group for `reason`, from any thread; an earlier error stays the first.
  virtual void abort(const Status &reason) = 0;
  /// The first error, or success.
  virtual Status state() const = 0;
  /// From now on there are more busy threads than processors (CommOptions::crowded). Not
  /// during a call.
  virtual void noteCrowded() {}
  /// Memory that the communicator itself holds, beside what the library below it does.
  virtual uint64_t scratchBytes() const { return 0; }

protected:
  Communicator(CommKind kind, int rank, int size)
      : ownKind(kind), ownRank(rank), ranks(size) {}

  /// Does one checked call of a group of two or more ranks.
  virtual Status perform(const CommCall &call) = 0;

private:
  Status checked(CommCall call);

  CommKind ownKind;
  int ownRank;
  int ranks;
};

/// The most ranks of a group.
constexpr int maxRanks = 4096;

/// Equal shards of `elements`, the first ones one element longer where it does not
/// divide.
ElementRange evenShard(uint64_t elements, int rank, int ranks);

} // namespace sluice
