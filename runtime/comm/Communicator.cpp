#include "runtime/comm/Communicator.h"

#include "runtime/comm/CallText.h"

#include <algorithm>

namespace sluice {

static uint32_t bytesOf(SumType type) { return type == SumType::f32 ? 4 : 8; }

ElementRange evenShard(uint64_t elements, int rank, int ranks) {
  uint64_t each = elements / ranks, more = elements % ranks;
  uint64_t r = static_cast<uint64_t>(rank);
  uint64_t begin = each * r + std::min(r, more);
  return {begin, begin + each + (r < more)};
}

static Status wrong(const CommCall &call, const std::string &what) {
  return Status::usage(callText(call) + ": " + what);
}

static Status checkParts(const CommCall &call) {
  bool sums = call.op == CommOp::allReduce || call.op == CommOp::reduceScatter;
  uint64_t alignment = sums ? call.elementBytes : 1;
  for (const Part &part : call.parts) {
    if (part.bytes == 0)
      continue;
    if (!part.data)
      return wrong(call,
                   "a part of " + std::to_string(part.bytes) + " bytes has no address");
    if (part.bytes % call.elementBytes || call.bytes > UINT64_MAX / 2)
      return wrong(call, "a part of " + std::to_string(part.bytes) +
                             " bytes is not made of elements of " +
                             std::to_string(call.elementBytes));
    if (reinterpret_cast<uintptr_t>(part.data) % alignment)
      return wrong(call, "a part is not aligned to its elements of " +
                             std::to_string(call.elementBytes) + " bytes");
  }
  return Status::success();
}

static Status checkShards(const CommCall &call, int size) {
  if (call.op != CommOp::reduceScatter && call.op != CommOp::allGather)
    return Status::success();
  if (call.shards.size() != static_cast<size_t>(size))
    return wrong(call, std::to_string(call.shards.size()) + " shards, expected " +
                           std::to_string(size) + ", one for each rank");
  uint64_t at = 0, elements = call.bytes / call.elementBytes;
  for (const ElementRange &shard : call.shards) {
    if (shard.begin < at || shard.end < shard.begin || shard.end > elements)
      return wrong(call, "shard [" + std::to_string(shard.begin) + ", " +
                             std::to_string(shard.end) + ") is not in order in " +
                             std::to_string(elements) + " elements");
    at = shard.end;
  }
  return Status::success();
}

Status Communicator::checked(CommCall call) {
  for (const Part &part : call.parts)
    call.bytes =
        part.bytes > UINT64_MAX / 2 - call.bytes ? UINT64_MAX : call.bytes + part.bytes;
  if (call.elementBytes == 0)
    return wrong(call, "elements of 0 bytes");
  if (Status status = checkParts(call); !status.ok())
    return status;
  if (Status status = checkShards(call, ranks); !status.ok())
    return status;
  bool pair = call.op == CommOp::send || call.op == CommOp::receive;
  if (call.peer < 0 || call.peer >= ranks || (pair && call.peer == ownRank))
    return wrong(call, "no other rank " + std::to_string(call.peer) + " among " +
                           std::to_string(ranks));
  if (ranks == 1)
    return state();
  return perform(call);
}

Status Communicator::allReduce(std::span<const Part> parts, SumType type,
                               const CallLabel &label) {
  return checked({.op = CommOp::allReduce,
                  .type = type,
                  .elementBytes = bytesOf(type),
                  .parts = parts,
                  .label = label});
}

Status Communicator::reduceScatter(std::span<const Part> parts, SumType type,
                                   std::span<const ElementRange> shards,
                                   const CallLabel &label) {
  return checked({.op = CommOp::reduceScatter,
                  .type = type,
                  .elementBytes = bytesOf(type),
                  .parts = parts,
                  .shards = shards,
                  .label = label});
}

Status Communicator::allGather(std::span<const Part> parts, uint32_t elementBytes,
                               std::span<const ElementRange> shards,
                               const CallLabel &label) {
  return checked({.op = CommOp::allGather,
                  .elementBytes = elementBytes,
                  .parts = parts,
                  .shards = shards,
                  .label = label});
}

Status Communicator::broadcast(std::span<const Part> parts, int root,
                               const CallLabel &label) {
  return checked({.op = CommOp::broadcast, .peer = root, .parts = parts, .label = label});
}

Status Communicator::send(std::span<const Part> parts, int to, const CallLabel &label) {
  return checked({.op = CommOp::send, .peer = to, .parts = parts, .label = label});
}

Status Communicator::receive(std::span<const Part> parts, int from,
                             const CallLabel &label) {
  return checked({.op = CommOp::receive, .peer = from, .parts = parts, .label = label});
}

Status Communicator::barrier(const CallLabel &label) {
  return checked({.op = CommOp::barrier, .label = label});
}

} // namespace sluice
