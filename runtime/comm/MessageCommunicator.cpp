#include "runtime/comm/MessageCommunicator.h"

#include "runtime/comm/CallText.h"

#include <cstring>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sluice {

/// Pieces in both directions, even and odd, from all ranks: some megabytes, but never
/// pieces so small that their latency shows.
static uint64_t pieceBytesFor(int ranks) {
  uint64_t piece = (uint64_t(8) << 20) / (4 * static_cast<uint64_t>(ranks));
  return std::clamp<uint64_t>(piece / 4096 * 4096, 64 << 10, 512 << 10);
}

Result<std::unique_ptr<Communicator>> overTransport(const sluice_transport &transport,
                                                    TransportOptions options) {
  if (!transport.post_send || !transport.post_receive || !transport.test)
    return Status::usage("a transport without post_send, post_receive or test");
  if (transport.size < 1 || transport.size > maxRanks || transport.rank < 0 ||
      transport.rank >= transport.size)
    return Status::usage("a transport of rank " + std::to_string(transport.rank) +
                         " among " + std::to_string(transport.size) +
                         ", expected at most " + std::to_string(maxRanks) + " ranks");
  auto comm = std::make_unique<MessageCommunicator>(transport, std::move(options));
  if (Status status = comm->state(); !status.ok())
    return status;
  return std::unique_ptr<Communicator>(std::move(comm));
}

MessageCommunicator::MessageCommunicator(const sluice_transport &through,
                                         TransportOptions given)
    : Communicator(given.kind, through.rank, through.size), transport(through),
      options(std::move(given)), pieceBytes(pieceBytesFor(through.size)),
      patience(options.comm.timeout) {
  if (size() == 1)
    return;
  const size_t ranks = static_cast<size_t>(size());
  pendingRequests.resize(SLUICE_TRANSPORT_REQUESTS(ranks));
  headersIn.resize(ranks * headerRoom);
  headerOwn.resize(headerRoom);
  notesIn.resize(ranks * noteRoom);
  inPieces.resize(2 * ranks * pieceBytes);
  outPieces.resize(2 * ranks * pieceBytes);
  evenShards.resize(ranks);
  sources.resize(ranks);
  for (int r = 0; r < size(); ++r)
    if (r != rank())
      (void)posted(noteIn, r, notesIn.data() + r * noteRoom, noteRoom, noteChannel);
}

MessageCommunicator::~MessageCommunicator() {
  std::lock_guard lock(calls);
  if (size() > 1) {
    if (failed && !announced)
      announce();
    if (!failed)
      leave();
    cancelAll(true);
  }
  if (options.close)
    options.close(failed);
}

uint64_t MessageCommunicator::scratchBytes() const {
  return inPieces.size() + outPieces.size() + headersIn.size() + headerOwn.size() +
         notesIn.size();
}

const MessageHeader &MessageCommunicator::headerOf(int r) const {
  const uint8_t *data =
      r == rank() ? headerOwn.data() : headersIn.data() + r * headerRoom;
  return *reinterpret_cast<const MessageHeader *>(data);
}

const uint8_t *MessageCommunicator::inlinedOf(int r) const {
  return headersIn.data() + r * headerRoom + sizeof(MessageHeader);
}

// ---- Requests ----

Status MessageCommunicator::transportError(const char *doing, int peer, int code) {
  const char *text =
      transport.error_text ? transport.error_text(transport.user, code) : nullptr;
  return fail(
      Status::failed(std::string(doing) + " " + ranksText({peer}, size()) +
                     " failed: " + (text ? text : "error " + std::to_string(code))));
}

Status MessageCommunicator::sent(uint32_t group, int to, const void *data, uint64_t bytes,
                                 int channel) {
  uint32_t number = request(group, to);
  pendingRequests[number] = 1;
  if (int code = transport.post_send(transport.user, number, data, bytes, to, channel)) {
    pendingRequests[number] = 0;
    return transportError("sending to", to, code);
  }
  return Status::success();
}

Status MessageCommunicator::posted(uint32_t group, int from, void *data, uint64_t room,
                                   int channel) {
  uint32_t number = request(group, from);
  pendingRequests[number] = 1;
  if (int code =
          transport.post_receive(transport.user, number, data, room, from, channel)) {
    pendingRequests[number] = 0;
    return transportError("receiving from", from, code);
  }
  return Status::success();
}

Status MessageCommunicator::testGroup(uint32_t group, int &left, int &finished) {
  left = finished = 0;
  for (int r = 0; r < size(); ++r) {
    uint32_t number = request(group, r);
    if (!pendingRequests[number])
      continue;
    bool done = false;
    if (int code = transport.test(transport.user, number, &done)) {
      pendingRequests[number] = 0;
      return transportError("a message to or from", r, code);
    }
    if (done)
      pendingRequests[number] = 0;
    ++(done ? finished : left);
  }
  return Status::success();
}

/// Where a processor is to be had, looking again at once finds messages soonest. Where
/// launches want it too it takes time from them: a yield that comes back late says so,
/// and for a while this thread sleeps instead.
void MessageCommunicator::rest(int round) {
  constexpr int remembered = 1000; // waits
  constexpr auto late = std::chrono::microseconds(20),
                 nap = std::chrono::microseconds(50);
  if (round == 0 && crowdedWaits > 0)
    --crowdedWaits;
  bool crowded = options.comm.crowded || crowdedWaits > 0;
  const int spins = crowded ? 16 : 400, yields = crowded ? 0 : 200;
  if (round < spins) {
#if defined(__x86_64__)
    _mm_pause();
#endif
  } else if (round < spins + yields) {
    auto start = Clock::now();
    std::this_thread::yield();
    if (Clock::now() - start > late)
      crowdedWaits = remembered;
  } else {
    std::this_thread::sleep_for(nap);
  }
}

Status MessageCommunicator::await(uint32_t group, const CommCall &call, bool whole) {
  auto start = Clock::now();
  for (int round = 0;; ++round) {
    int left = 0, finished = 0;
    if (Status status = testGroup(group, left, finished); !status.ok())
      return status;
    if (finished && group == headerIn)
      if (Status status = lookWhoLeft(call); !status.ok())
        return status;
    if (left == 0)
      return Status::success();
    if (failed)
      return state();
    if (finished && !whole) {
      start = Clock::now();
      round = 0;
    }
    rest(round);
    if (round % 32 != 31)
      continue;
    if (Status status = lookForNotes(); !status.ok())
      return status;
    if (Clock::now() - start >= patience)
      return waitedTooLong(group, call);
  }
}

Status MessageCommunicator::waitedTooLong(uint32_t group, const CommCall &call) {
  std::vector<int> late;
  for (int r = 0; r < size(); ++r)
    if (pendingRequests[request(group, r)])
      late.push_back(r);
  if (group == headerIn)
    return fail(missingRanks(late, size(), call, patience));
  return fail(stalledRanks(late, size(), call, patience));
}

void MessageCommunicator::cancelAll(bool notesToo) {
  for (uint32_t number = 0; number < pendingRequests.size(); ++number) {
    if (!pendingRequests[number] || (!notesToo && number >= request(noteIn, 0)))
      continue;
    if (transport.cancel)
      transport.cancel(transport.user, number);
    pendingRequests[number] = 0;
  }
}

// ---- Failure ----

Status MessageCommunicator::state() const {
  std::lock_guard lock(stateMutex);
  return error;
}

/// The first error stays, and the others are told it.
Status MessageCommunicator::fail(Status reason) {
  {
    std::lock_guard lock(stateMutex);
    if (error.ok()) {
      error = std::move(reason);
      failed = true;
    }
  }
  if (!announced)
    announce();
  return state();
}

/// Tells the others why this rank will not go on, so that they need not find out by
/// waiting. One that is gone does not listen, so this is tried for a moment only.
void MessageCommunicator::announce() {
  announced = true;
  std::string text = state().message;
  std::memcpy(note, text.data(), std::min(text.size(), noteRoom - 1));
  for (int r = 0; r < size(); ++r) {
    uint32_t number = request(noteOut, r);
    if (r != rank() &&
        transport.post_send(transport.user, number, note, noteRoom, r, noteChannel) == 0)
      pendingRequests[number] = 1;
  }
  auto start = Clock::now();
  int left = 0, finished = 0;
  for (int round = 0; Clock::now() - start < std::chrono::milliseconds(100); ++round) {
    if (!testGroup(noteOut, left, finished).ok() || left == 0)
      return;
    rest(round);
  }
}

Status MessageCommunicator::lookForNotes() {
  for (int r = 0; r < size(); ++r) {
    uint32_t number = request(noteIn, r);
    bool done = false;
    if (!pendingRequests[number] || transport.test(transport.user, number, &done) != 0 ||
        !done)
      continue;
    pendingRequests[number] = 0;
    const char *text = reinterpret_cast<const char *>(notesIn.data() + r * noteRoom);
    announced = true; // by the one who was first
    return fail(Status::failed(std::string(text, strnlen(text, noteRoom))));
  }
  return Status::success();
}

void MessageCommunicator::abort(const Status &reason) {
  {
    std::lock_guard lock(stateMutex);
    if (!error.ok())
      return;
    error = Status::failed(ranksText({rank()}, size()) + " gave up: " + reason.message);
    failed = true;
  }
  // Else the thread that is in a call sees it and tells the others.
  if (std::unique_lock lock(calls, std::try_to_lock); lock && !announced && size() > 1)
    announce();
}

Status MessageCommunicator::perform(const CommCall &call) {
  Status status;
  {
    std::lock_guard lock(calls);
    if (!failed)
      status = run(call);
    if (failed) {
      if (!announced)
        announce();
      cancelAll(false);
      return state();
    }
  }
  // abort() may have come when the call was done but the lock still held.
  if (failed)
    if (std::unique_lock lock(calls, std::try_to_lock); lock && !announced)
      announce();
  return status;
}

/// The others see at their next call that this rank is gone, or it waits for them to go
/// too.
void MessageCommunicator::leave() {
  CommCall end;
  end.label = {"end", 0, "end"};
  MessageHeader &header = *reinterpret_cast<MessageHeader *>(headerOwn.data());
  header = MessageHeader::of(end);
  header.op = MessageHeader::leaving;
  patience = options.closeTogether
                 ? 10 * options.comm.timeout
                 : std::min(options.comm.timeout, std::chrono::milliseconds(20));
  for (int r = 0; r < size(); ++r) {
    if (r == rank())
      continue;
    if (options.closeTogether)
      (void)posted(headerIn, r, headersIn.data() + r * headerRoom, headerRoom,
                   headerChannel);
    (void)sent(headerOut, r, &header, sizeof header, headerChannel);
  }
  if (options.closeTogether && await(headerIn, end, true).ok())
    for (int r = 0; r < size(); ++r)
      if (headerOf(r).op != MessageHeader::leaving)
        (void)fail(Status::failed(ranksText({rank()}, size()) + " left before " +
                                  callText(headerOf(r).call())));
  auto start = Clock::now();
  int left = 0, finished = 0;
  for (int round = 0; !failed && Clock::now() - start < patience; ++round) {
    if (!testGroup(headerOut, left, finished).ok() || left == 0)
      return;
    rest(round);
  }
}

} // namespace sluice
