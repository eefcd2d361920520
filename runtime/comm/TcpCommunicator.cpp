#include "runtime/comm/TcpCommunicator.h"

#include "runtime/comm/MessageCommunicator.h"

#include <cerrno>
#include <cstring>
#include <deque>
#include <sys/socket.h>

namespace sluice {
namespace {

/// Before the bytes of a message.
struct Frame {
  uint32_t channel = 0, unused = 0;
  uint64_t bytes = 0;
};

/// What comes before anyone waits for it is kept, up to this.
constexpr uint64_t mostEarlyBytes = 256 << 20;

struct Outgoing {
  Frame frame;
  const uint8_t *data = nullptr;
  uint64_t written = 0; ///< of frame and bytes together
  uint32_t request = 0;
};

struct Posted {
  uint8_t *data = nullptr;
  uint64_t room = 0;
  uint32_t request = 0;
};

/// The connection to one other rank.
struct Peer {
  Socket socket;
  std::deque<Outgoing> out;
  std::deque<Posted> posted[SLUICE_TRANSPORT_CHANNELS];
  std::deque<std::vector<uint8_t>> early[SLUICE_TRANSPORT_CHANNELS];
  uint64_t earlyBytes = 0;
  // The message that is coming in.
  Frame frame;
  uint64_t read = 0; ///< of frame and bytes together
  bool hasPlace = false, isEarly = false;
  Posted place;
  std::vector<uint8_t> kept;
  std::string broken; ///< why nothing more comes or goes
};

class TcpTransport {
public:
  TcpTransport(std::vector<Socket> sockets, int rank)
      : rank(rank), peers(sockets.size()),
        requests(SLUICE_TRANSPORT_REQUESTS(sockets.size())) {
    for (size_t r = 0; r < sockets.size(); ++r)
      peers[r].socket = std::move(sockets[r]);
  }

  sluice_transport table() {
    return {.user = this,
            .rank = rank,
            .size = static_cast<int>(peers.size()),
            .post_send =
                [](void *user, uint32_t request, const void *data, size_t bytes, int to,
                   int channel) {
                  return of(user).postSend(request, data, bytes, to, channel);
                },
            .post_receive =
                [](void *user, uint32_t request, void *data, size_t room, int from,
                   int channel) {
                  return of(user).postReceive(request, data, room, from, channel);
                },
            .test = [](void *user, uint32_t request,
                       bool *done) { return of(user).test(request, *done); },
            .cancel = [](void *user, uint32_t request) { of(user).cancel(request); },
            .error_text = [](void *user, int) { return of(user).error.c_str(); }};
  }

private:
  struct Request {
    int peer = -1;
    bool done = false, sends = false;
  };

  static TcpTransport &of(void *user) { return *static_cast<TcpTransport *>(user); }

  int postSend(uint32_t request, const void *data, size_t bytes, int to, int channel) {
    Peer &peer = peers[static_cast<size_t>(to)];
    requests[request] = {to, false, true};
    Frame frame;
    frame.channel = static_cast<uint32_t>(channel);
    frame.bytes = bytes;
    peer.out.push_back({frame, static_cast<const uint8_t *>(data), 0, request});
    return 0;
  }

  int postReceive(uint32_t request, void *data, size_t room, int from, int channel) {
    Peer &peer = peers[static_cast<size_t>(from)];
    requests[request] = {from, false, false};
    Posted posted{static_cast<uint8_t *>(data), room, request};
    auto &early = peer.early[channel];
    if (early.empty()) {
      peer.posted[channel].push_back(posted);
      return 0;
    }
    std::vector<uint8_t> message = std::move(early.front());
    early.pop_front();
    peer.earlyBytes -= message.size();
    if (message.size() > room)
      return fail("a message is longer than its place");
    if (!message.empty())
      std::memcpy(data, message.data(), message.size());
    requests[request].done = true;
    return 0;
  }

  int test(uint32_t number, bool &done) {
    Request &request = requests[number];
    Peer &peer = peers[static_cast<size_t>(request.peer)];
    if (!request.done) {
      writeTo(peer);
      readFrom(peer);
    }
    done = request.done;
    return done || peer.broken.empty() ? 0 : fail(peer.broken);
  }

  void cancel(uint32_t number) {
    Peer &peer = peers[static_cast<size_t>(requests[number].peer)];
    for (auto &list : peer.posted)
      std::erase_if(list, [&](const Posted &one) { return one.request == number; });
    // The rest of a message that is half here or half away has no place any more.
    bool halfIn = peer.hasPlace && !peer.isEarly && peer.place.request == number;
    bool halfOut = !peer.out.empty() && peer.out.front().request == number &&
                   peer.out.front().written > 0;
    if (halfIn || halfOut)
      peer.broken = "a message was given up half way";
    std::erase_if(peer.out, [&](const Outgoing &one) { return one.request == number; });
  }

  void writeTo(Peer &peer) {
    while (peer.broken.empty() && !peer.out.empty()) {
      Outgoing &message = peer.out.front();
      const uint64_t total = sizeof(Frame) + message.frame.bytes;
      const auto *head = reinterpret_cast<const uint8_t *>(&message.frame);
      bool inHead = message.written < sizeof(Frame);
      const uint8_t *from = inHead ? head + message.written
                                   : message.data + (message.written - sizeof(Frame));
      uint64_t bytes = (inHead ? sizeof(Frame) : total) - message.written;
      ssize_t moved = bytes == 0 ? 0 : send(peer.socket.get(), from, bytes, MSG_NOSIGNAL);
      if (moved < 0)
        return noteError(peer);
      message.written += static_cast<uint64_t>(moved);
      if (message.written < total)
        continue;
      requests[message.request].done = true;
      peer.out.pop_front();
    }
  }

  void readFrom(Peer &peer) {
    while (peer.broken.empty()) {
      if (peer.read >= sizeof(Frame) && !peer.hasPlace && !findPlace(peer))
        return;
      bool inHead = peer.read < sizeof(Frame);
      uint64_t at = inHead ? peer.read : peer.read - sizeof(Frame);
      uint8_t *to =
          (inHead ? reinterpret_cast<uint8_t *>(&peer.frame) : peer.place.data) + at;
      uint64_t bytes = (inHead ? sizeof(Frame) : peer.frame.bytes) - at;
      if (bytes > 0) {
        ssize_t moved = recv(peer.socket.get(), to, bytes, 0);
        if (moved == 0)
          peer.broken = "it has closed its connection";
        if (moved < 0)
          return noteError(peer);
        peer.read += static_cast<uint64_t>(moved);
      }
      if (peer.hasPlace && peer.read == sizeof(Frame) + peer.frame.bytes)
        finish(peer);
    }
  }

  /// Where the bytes behind a frame go.
  bool findPlace(Peer &peer) {
    if (peer.frame.channel >= SLUICE_TRANSPORT_CHANNELS) {
      peer.broken = "it sends what is no message";
      return false;
    }
    auto &posted = peer.posted[peer.frame.channel];
    peer.isEarly = posted.empty();
    if (peer.isEarly) {
      if (peer.frame.bytes > mostEarlyBytes - peer.earlyBytes) {
        peer.broken = "it sends more than anyone waits for";
        return false;
      }
      peer.kept.resize(peer.frame.bytes);
      peer.place = {peer.kept.data(), peer.frame.bytes, 0};
    } else {
      peer.place = posted.front();
      if (peer.frame.bytes > peer.place.room) {
        peer.broken = "it sends a message that is longer than its place";
        return false;
      }
      posted.pop_front();
    }
    peer.hasPlace = true;
    return true;
  }

  void finish(Peer &peer) {
    if (!peer.isEarly) {
      requests[peer.place.request].done = true;
    } else if (auto &posted = peer.posted[peer.frame.channel]; posted.empty()) {
      peer.earlyBytes += peer.kept.size();
      peer.early[peer.frame.channel].push_back(std::move(peer.kept));
    } else { // posted while it came in
      Posted place = posted.front();
      posted.pop_front();
      if (peer.kept.size() > place.room)
        peer.broken = "it sends a message that is longer than its place";
      else if (!peer.kept.empty())
        std::memcpy(place.data, peer.kept.data(), peer.kept.size());
      requests[place.request].done = peer.broken.empty();
    }
    peer.kept.clear();
    peer.read = 0;
    peer.hasPlace = false;
  }

  static void noteError(Peer &peer) {
    if (errno != EAGAIN && errno != EINTR)
      peer.broken = std::strerror(errno);
  }

  int fail(std::string why) {
    error = std::move(why);
    return 1;
  }

  int rank;
  std::vector<Peer> peers;
  std::vector<Request> requests;
  std::string error;
};

} // namespace

Result<std::unique_ptr<Communicator>> openTcp(const Meeting &meeting,
                                              const CommOptions &options) {
  if (meeting.size < 1 || meeting.size > maxRanks || meeting.rank < 0 ||
      meeting.rank >= meeting.size)
    return Status::usage("rank " + std::to_string(meeting.rank) + " of " +
                         std::to_string(meeting.size) + ", expected 0 to the number of " +
                         "ranks - 1, of at most " + std::to_string(maxRanks));
  Result<std::vector<Socket>> sockets = meet(meeting);
  if (!sockets)
    return sockets.status();
  auto transport = std::make_shared<TcpTransport>(std::move(*sockets), meeting.rank);
  TransportOptions over;
  over.comm = options;
  over.kind = CommKind::tcp;
  over.closeTogether = true;
  over.close = [transport](bool) {}; // it lives as long
  return overTransport(transport->table(), std::move(over));
}

} // namespace sluice
