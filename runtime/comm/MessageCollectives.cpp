// The calls of MessageCommunicator: meeting, short messages, pairs, and the walk through
// the pieces of long ones.

#include "runtime/comm/CallText.h"
#include "runtime/comm/MessageCommunicator.h"
#include "runtime/comm/MessageCursor.h"
#include "runtime/comm/SumTree.h"

#include <cstring>

namespace sluice {

static bool isPair(const CommCall &call) {
  return call.op == CommOp::send || call.op == CommOp::receive;
}

/// Where these bytes of the message lie, if together.
static uint8_t *direct(const CommCall &call, uint64_t begin, uint64_t bytes) {
  MessageCursor cursor;
  cursor.seek(call.parts, begin);
  return cursor.contiguous() >= bytes ? cursor.data() : nullptr;
}

static void pack(const CommCall &call, uint64_t begin, uint64_t bytes, uint8_t *to) {
  MessageCursor cursor;
  cursor.seek(call.parts, begin);
  while (bytes > 0) {
    uint64_t some = std::min(bytes, cursor.contiguous());
    std::memcpy(to, cursor.data(), some);
    cursor.advance(some);
    to += some;
    bytes -= some;
  }
}

void MessageCommunicator::unpack(const CommCall &call, Range range, const uint8_t *from) {
  MessageCursor cursor;
  cursor.seek(call.parts, range.begin);
  while (range.bytes > 0) {
    uint64_t some = std::min(range.bytes, cursor.contiguous());
    std::memcpy(cursor.data(), from, some);
    cursor.advance(some);
    from += some;
    range.bytes -= some;
  }
}

void MessageCommunicator::sumInto(const CommCall &call, Range range,
                                  const uint8_t *others, uint64_t stride) {
  MessageCursor cursor;
  cursor.seek(call.parts, range.begin);
  for (int r = 0; r < size(); ++r)
    sources[r] = others + static_cast<uint64_t>(r) * stride;
  alignas(64) uint8_t sum[sumBlockBytes];
  while (range.bytes > 0) {
    uint64_t bytes = std::min({range.bytes, sumBlockBytes, cursor.contiguous()});
    sources[rank()] = cursor.data();
    sumBlock(sources.data(), size(), sum, bytes, call.type);
    std::memcpy(cursor.data(), sum, bytes);
    cursor.advance(bytes);
    for (const uint8_t *&source : sources)
      source += bytes;
    range.bytes -= bytes;
  }
}

// ---- Meeting ----

/// Bytes of the own header, with the message if it is short and others need it.
uint64_t MessageCommunicator::packHeader(const CommCall &call) {
  const MessageHeader header = MessageHeader::of(call);
  std::memcpy(headerOwn.data(), &header, sizeof header);
  bool theirs =
      call.op == CommOp::receive || (call.op == CommOp::broadcast && call.peer != rank());
  if (call.bytes > headerRoom - sizeof header || theirs)
    return sizeof header;
  pack(call, 0, call.bytes, headerOwn.data() + sizeof header);
  return sizeof header + call.bytes;
}

/// One that left will not come again, whatever the others do.
Status MessageCommunicator::lookWhoLeft(const CommCall &call) {
  if (headerOf(rank()).op == MessageHeader::leaving)
    return Status::success();
  std::vector<int> left;
  for (int r = 0; r < size(); ++r)
    if (r != rank() && (!isPair(call) || r == call.peer) &&
        !pendingRequests[request(headerIn, r)] &&
        headerOf(r).op == MessageHeader::leaving)
      left.push_back(r);
  if (left.empty())
    return Status::success();
  return fail(Status::failed(ranksText(left, size()) + " left before " + callText(call)));
}

/// Are all ranks, or both of a pair, at the same call?
Status MessageCommunicator::compareHeaders(const CommCall &call) {
  const MessageHeader &first = headerOf(isPair(call) ? rank() : 0);
  for (int r = 0; r < size(); ++r)
    if ((!isPair(call) || r == call.peer) && !headerOf(r).matches(first))
      return fail(callsDiffer(isPair(call) ? rank() : 0, first.call(), r,
                              headerOf(r).call(), size()));
  return Status::success();
}

Status MessageCommunicator::meet(const CommCall &call) {
  uint64_t bytes = packHeader(call);
  for (int r = 0; r < size(); ++r) {
    if (r == rank() || (isPair(call) && r != call.peer))
      continue;
    int channel = headerChannel + (isPair(call) ? pairOffset : 0);
    if (Status status =
            posted(headerIn, r, headersIn.data() + r * headerRoom, headerRoom, channel);
        !status.ok())
      return status;
    if (Status status = sent(headerOut, r, headerOwn.data(), bytes, channel);
        !status.ok())
      return status;
  }
  if (Status status = await(headerIn, call, true); !status.ok())
    return status;
  return compareHeaders(call);
}

void MessageCommunicator::takeInlined(const CommCall &call) {
  const uint64_t each = call.elementBytes;
  switch (call.op) {
  case CommOp::allReduce:
    sumInto(call, {0, call.bytes}, inlinedOf(0), headerRoom);
    break;
  case CommOp::reduceScatter: {
    ElementRange own = call.shards[rank()];
    sumInto(call, {own.begin * each, (own.end - own.begin) * each},
            inlinedOf(0) + own.begin * each, headerRoom);
    break;
  }
  case CommOp::allGather:
    for (int r = 0; r < size(); ++r) {
      ElementRange shard = call.shards[r];
      if (r != rank())
        unpack(call, {shard.begin * each, (shard.end - shard.begin) * each},
               inlinedOf(r) + shard.begin * each);
    }
    break;
  case CommOp::broadcast:
  case CommOp::receive:
    if (call.peer != rank())
      unpack(call, {0, call.bytes}, inlinedOf(call.peer));
    break;
  case CommOp::send:
  case CommOp::barrier:
    break;
  }
}

Status MessageCommunicator::run(const CommCall &call) {
  if (Status status = meet(call); !status.ok())
    return status;
  Status status;
  if (call.bytes <= headerRoom - sizeof(MessageHeader))
    takeInlined(call);
  else
    status = isPair(call) ? pair(call) : walk(call);
  return status.ok() ? await(headerOut, call) : status;
}

// ---- Long messages ----

Status MessageCommunicator::sendRange(uint32_t group, int to, const CommCall &call,
                                      Range range, uint8_t *scratch, int channel) {
  const uint8_t *data = direct(call, range.begin, range.bytes);
  if (!data) {
    pack(call, range.begin, range.bytes, scratch);
    data = scratch;
  }
  return sent(group, to, data, range.bytes, channel);
}

/// Where the bytes do not lie together they come to `scratch` and are to be unpacked.
Status MessageCommunicator::receiveRange(uint32_t group, int from, const CommCall &call,
                                         Range range, uint8_t *scratch, int channel) {
  uint8_t *data = direct(call, range.begin, range.bytes);
  return posted(group, from, data ? data : scratch, range.bytes, channel);
}

/// Two pieces are under way at a time.
Status MessageCommunicator::pair(const CommCall &call) {
  const int channel = scatterChannel + pairOffset;
  const uint64_t steps = (call.bytes + pieceBytes - 1) / pieceBytes;
  const uint32_t group = call.op == CommOp::send ? scatterOut : scatterIn;
  auto range = [&](uint64_t step) {
    uint64_t begin = step * pieceBytes;
    return Range{begin, std::min(pieceBytes, call.bytes - begin)};
  };
  for (uint64_t step = 0; step < steps + 2; ++step) {
    if (step >= 2) {
      if (Status status = await(group + step % 2, call); !status.ok())
        return status;
      Range last = range(step - 2);
      if (call.op == CommOp::receive && !direct(call, last.begin, last.bytes))
        unpack(call, last, inPiece(step, call.peer));
    }
    if (step >= steps)
      continue;
    Status status = call.op == CommOp::send
                        ? sendRange(group + step % 2, call.peer, call, range(step),
                                    outPiece(step, call.peer), channel)
                        : receiveRange(group + step % 2, call.peer, call, range(step),
                                       inPiece(step, call.peer), channel);
    if (!status.ok())
      return status;
  }
  return Status::success();
}

MessageCommunicator::Range MessageCommunicator::piece(const Walk &walk, int r,
                                                      uint64_t step) const {
  uint64_t begin = walk.shards[r].begin * walk.call.elementBytes + step * pieceBytes;
  uint64_t end = walk.shards[r].end * walk.call.elementBytes;
  return begin < end ? Range{begin, std::min(pieceBytes, end - begin)} : Range{};
}

/// Pieces to their owners.
Status MessageCommunicator::scatter(const Walk &walk, uint64_t step) {
  const uint32_t in = scatterIn + step % 2, out = scatterOut + step % 2;
  const Range own = piece(walk, rank(), step);
  for (int r = 0; r < size(); ++r) {
    Range range = piece(walk, r, step);
    if (r == rank() || walk.first == First::none)
      continue;
    Status status;
    if (own.bytes && walk.first == First::sum)
      status = posted(in, r, inPiece(step, r), own.bytes, scatterChannel);
    else if (own.bytes && r == walk.call.peer)
      status = receiveRange(in, r, walk.call, own, inPiece(step, r), scatterChannel);
    if (status.ok() && range.bytes &&
        (walk.first == First::sum || rank() == walk.call.peer))
      status = sendRange(out, r, walk.call, range, outPiece(step, r), scatterChannel);
    if (!status.ok())
      return status;
  }
  return Status::success();
}

Status MessageCommunicator::finishScatter(const Walk &walk, uint64_t step) {
  const Range own = piece(walk, rank(), step);
  if (Status status = await(scatterIn + step % 2, walk.call); !status.ok())
    return status;
  if (walk.first == First::sum)
    sumInto(walk.call, own, inPiece(step, 0), pieceBytes);
  else if (walk.first == First::root && rank() != walk.call.peer &&
           !direct(walk.call, own.begin, own.bytes))
    unpack(walk.call, own, inPiece(step, walk.call.peer));
  // What is being sent from is about to be received into.
  return await(scatterOut + step % 2, walk.call);
}

/// Finished pieces from their owners to all.
Status MessageCommunicator::gather(const Walk &walk, uint64_t step) {
  const uint32_t in = gatherIn + step % 2, out = gatherOut + step % 2;
  const Range own = piece(walk, rank(), step);
  const int root = walk.first == First::root ? walk.call.peer : -1;
  if (!walk.gather)
    return Status::success();
  if (own.bytes && !direct(walk.call, own.begin, own.bytes))
    pack(walk.call, own.begin, own.bytes, outPiece(step, rank()));
  for (int r = 0; r < size(); ++r) {
    Range range = piece(walk, r, step);
    if (r == rank())
      continue;
    Status status;
    if (range.bytes && rank() != root)
      status = receiveRange(in, r, walk.call, range, inPiece(step, r), gatherChannel);
    if (status.ok() && own.bytes && r != root) {
      const uint8_t *data = direct(walk.call, own.begin, own.bytes);
      status =
          sent(out, r, data ? data : outPiece(step, rank()), own.bytes, gatherChannel);
    }
    if (!status.ok())
      return status;
  }
  return Status::success();
}

Status MessageCommunicator::finishGather(const Walk &walk, uint64_t step) {
  if (!walk.gather)
    return Status::success();
  if (Status status = await(gatherIn + step % 2, walk.call); !status.ok())
    return status;
  const bool keeps = walk.first == First::root && rank() == walk.call.peer;
  for (int r = 0; r < size() && !keeps; ++r) {
    Range range = piece(walk, r, step);
    if (r != rank() && range.bytes && !direct(walk.call, range.begin, range.bytes))
      unpack(walk.call, range, inPiece(step, r));
  }
  return await(gatherOut + step % 2, walk.call);
}

Status MessageCommunicator::walk(const CommCall &call) {
  Walk walk{.call = call, .shards = call.shards};
  if (call.op == CommOp::allReduce || call.op == CommOp::broadcast) {
    for (int r = 0; r < size(); ++r)
      evenShards[r] = evenShard(call.bytes / call.elementBytes, r, size());
    walk.shards = evenShards;
  }
  walk.gather = call.op != CommOp::reduceScatter;
  if (call.op == CommOp::broadcast)
    walk.first = First::root;
  else if (call.op != CommOp::allGather)
    walk.first = First::sum;
  for (const ElementRange &shard : walk.shards) {
    uint64_t bytes = (shard.end - shard.begin) * call.elementBytes;
    walk.steps = std::max(walk.steps, (bytes + pieceBytes - 1) / pieceBytes);
  }
  // Step k is scattered while step k - 1 is summed and gathered; even and odd steps have
  // their own room, so step k - 2 has to be over.
  for (uint64_t step = 0; step < walk.steps + 2; ++step) {
    Status status;
    if (step >= 2)
      status = finishGather(walk, step - 2);
    if (status.ok() && step < walk.steps)
      status = scatter(walk, step);
    if (status.ok() && step >= 1 && step <= walk.steps)
      status = finishScatter(walk, step - 1);
    if (status.ok() && step >= 1 && step <= walk.steps)
      status = gather(walk, step - 1);
    if (!status.ok())
      return status;
  }
  return Status::success();
}

} // namespace sluice
