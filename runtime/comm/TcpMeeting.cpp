#include "runtime/comm/TcpMeeting.h"

#include "runtime/comm/CallText.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <random>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace sluice {

Socket::~Socket() {
  if (fd >= 0)
    close(fd);
}

namespace {

using Clock = std::chrono::steady_clock;

/// What the one who connects says first.
struct Hello {
  char magic[8] = {'s', 'l', 'u', 'i', 'c', 'e', '0', '1'};
  uint64_t token = 0; ///< of the file; 0 without one
  int32_t size = 0, rank = 0;
  uint16_t port = 0; ///< where it listens
  uint16_t unused[3] = {};
};

/// Where a rank listens, as rank 0 sees it.
struct Place {
  sockaddr_storage address = {};
  uint32_t length = 0, unused = 0;
};

void setPort(sockaddr_storage &address, uint16_t port) {
  if (address.ss_family == AF_INET6)
    reinterpret_cast<sockaddr_in6 &>(address).sin6_port = htons(port);
  else
    reinterpret_cast<sockaddr_in &>(address).sin_port = htons(port);
}

uint16_t portOf(const sockaddr_storage &address) {
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6 &>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in &>(address).sin_port);
}

class Meet {
public:
  explicit Meet(const Meeting &meeting)
      : meeting(meeting), deadline(Clock::now() + meeting.timeout),
        peers(static_cast<size_t>(meeting.size)) {}

  Status run() {
    bool byFile = meeting.where.starts_with("file:");
    path = byFile ? meeting.where.substr(5) : "";
    if (!byFile && !meeting.where.starts_with("tcp:"))
      return Status::usage("'" + meeting.where +
                           "' is no place to meet, expected tcp:HOST:PORT or file:PATH");
    if (!byFile)
      if (Status status = splitAddress(meeting.where.substr(4)); !status.ok())
        return status;
    if (Status status = listenHere(byFile || meeting.rank > 0 ? 0 : port); !status.ok())
      return status;
    if (meeting.rank > 0)
      return join();
    if (byFile)
      if (Status status = writeFile(); !status.ok())
        return status;
    Status status = welcome();
    if (byFile)
      unlink(path.c_str());
    return status;
  }

  const Meeting &meeting;
  Clock::time_point deadline;
  std::vector<Socket> peers;

private:
  Status systemError(const std::string &what) const {
    return Status::cannotRunHere(what + ": " + std::strerror(errno));
  }
  bool isLate() const { return Clock::now() >= deadline; }
  static void rest() { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }
  std::string own() const { return ranksText({meeting.rank}, meeting.size); }

  Status splitAddress(const std::string &text) {
    size_t colon = text.rfind(':');
    const char *end = text.data() + text.size();
    if (colon == std::string::npos || colon == 0 ||
        std::from_chars(text.data() + colon + 1, end, port).ptr != end || port == 0)
      return Status::usage("'tcp:" + text + "' is no address, expected tcp:HOST:PORT");
    host = text.substr(0, colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']')
      host = host.substr(1, host.size() - 2);
    return Status::success();
  }

  Status listenHere(uint16_t wanted) {
    // One of IPv6 takes IPv4 too, where the machine has both.
    for (int family : {AF_INET6, AF_INET}) {
      listener = Socket(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      int yes = 1, no = 0;
      sockaddr_storage any = {};
      any.ss_family = static_cast<sa_family_t>(family);
      setPort(any, wanted);
      socklen_t length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
      if (!listener)
        continue;
      setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
      if (family == AF_INET6)
        setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
      if (bind(listener.get(), reinterpret_cast<sockaddr *>(&any), length) == 0 &&
          listen(listener.get(), meeting.size) == 0) {
        length = sizeof any;
        getsockname(listener.get(), reinterpret_cast<sockaddr *>(&any), &length);
        ownPort = portOf(any);
        return Status::success();
      }
    }
    return systemError(own() + " cannot listen" +
                       (wanted ? " at port " + std::to_string(wanted) : ""));
  }

  /// Whole or not at all.
  Status writeFile() {
    if (access(path.c_str(), F_OK) == 0)
      return Status::refused("'" + path +
                             "', where ranks are to meet, is there already: "
                             "remove what another job has left");
    std::random_device random;
    token = uint64_t(random()) << 32 | random() | 1;
    char name[256] = "localhost";
    gethostname(name, sizeof name - 1);
    std::string text = std::string(name) + " " + std::to_string(ownPort) + " " +
                       std::to_string(token) + "\n";
    std::string part = path + ".part";
    int fd = open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    Socket file(fd);
    if (fd < 0 || write(fd, text.data(), text.size()) != ssize_t(text.size()) ||
        rename(part.c_str(), path.c_str()) != 0)
      return systemError("cannot write '" + path + "', where ranks are to meet");
    return Status::success();
  }

  bool readFile() {
    char text[512] = {};
    Socket file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    char name[256] = {};
    unsigned long long number = 0;
    if (!file || read(file.get(), text, sizeof text - 1) <= 0 ||
        std::sscanf(text, "%255s %hu %llu", name, &port, &number) != 3)
      return false;
    host = name;
    token = number;
    return true;
  }

  /// Rank 0: the others come in any order; then all hear of all.
  Status welcome() {
    std::vector<Place> places(peers.size());
    for (int missing = meeting.size - 1; missing > 0; --missing) {
      Place place;
      Hello hello;
      if (Status status = accepted(0, hello, place); !status.ok())
        return status;
      setPort(place.address, hello.port);
      places[static_cast<size_t>(hello.rank)] = place;
    }
    for (size_t r = 1; r < peers.size(); ++r)
      if (Status status = transfer(peers[r].get(), places.data(),
                                   places.size() * sizeof(Place), true, int(r));
          !status.ok())
        return status;
    return Status::success();
  }

  Status join() {
    while (!path.empty() && !readFile()) {
      if (isLate())
        return missing({0});
      rest();
    }
    if (Status status = connectToFirst(); !status.ok())
      return status;
    std::vector<Place> places(peers.size());
    if (Status status = transfer(peers[0].get(), places.data(),
                                 places.size() * sizeof(Place), false, 0);
        !status.ok())
      return status;
    // The higher of a pair goes to the lower.
    for (int r = 1; r < meeting.rank; ++r) {
      const Place &place = places[static_cast<size_t>(r)];
      if (place.length > sizeof place.address)
        return Status::damaged("rank 0 says a wrong address of rank " +
                               std::to_string(r));
      if (Status status = connectTo(place, r); !status.ok())
        return status;
    }
    for (int r = meeting.rank + 1; r < meeting.size; ++r) {
      Hello hello;
      Place place;
      if (Status status = accepted(meeting.rank, hello, place); !status.ok())
        return status;
    }
    return Status::success();
  }

  /// Rank 0 may not listen yet.
  Status connectToFirst() {
    addrinfo hints = {}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (code != 0)
      return Status::cannotRunHere("cannot find the host '" + host +
                                   "' of rank 0: " + gai_strerror(code));
    Status status;
    do {
      for (addrinfo *one = found; one; one = one->ai_next) {
        Place place;
        std::memcpy(&place.address, one->ai_addr, one->ai_addrlen);
        place.length = one->ai_addrlen;
        status = connectTo(place, 0);
        if (status.ok())
          break;
      }
      if (!status.ok())
        rest();
    } while (!status.ok() && !isLate());
    freeaddrinfo(found);
    return status.ok() ? status : missing({0});
  }

  Status connectTo(const Place &place, int r) {
    int family = place.address.ss_family;
    Socket to(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    auto *address = reinterpret_cast<const sockaddr *>(&place.address);
    if (!to || (connect(to.get(), address, place.length) != 0 && errno != EINPROGRESS))
      return systemError("cannot connect to rank " + std::to_string(r));
    Hello hello;
    hello.token = token;
    hello.size = meeting.size;
    hello.rank = meeting.rank;
    hello.port = ownPort;
    Status status = transfer(to.get(), &hello, sizeof hello, true, r);
    if (status.ok())
      take(std::move(to), r);
    return status;
  }

  /// The next rank above `lowest` that comes; strangers are sent away.
  Status accepted(int lowest, Hello &hello, Place &place) {
    for (;;) {
      place.length = sizeof place.address;
      Socket from(accept4(listener.get(), reinterpret_cast<sockaddr *>(&place.address),
                          &place.length, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!from) {
        if (isLate())
          return missing(notThere(lowest));
        rest();
        continue;
      }
      if (!transfer(from.get(), &hello, sizeof hello, false, -1).ok() ||
          std::memcmp(hello.magic, Hello().magic, sizeof hello.magic) != 0 ||
          hello.token != token)
        continue;
      if (hello.size != meeting.size)
        return Status::refused(
            "a rank of " + std::to_string(hello.size) + " came to meet a group of " +
            std::to_string(meeting.size) + ": start all with the same number of ranks");
      if (hello.rank <= lowest || hello.rank >= meeting.size ||
          peers[static_cast<size_t>(hello.rank)])
        return Status::refused("rank " + std::to_string(hello.rank) + " of " +
                               std::to_string(meeting.size) +
                               " came twice: start each rank once");
      take(std::move(from), hello.rank);
      return Status::success();
    }
  }

  void take(Socket &&socket, int r) {
    int yes = 1;
    setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    peers[static_cast<size_t>(r)] = std::move(socket);
  }

  std::vector<int> notThere(int lowest) const {
    std::vector<int> list;
    for (int r = lowest + 1; r < meeting.size; ++r)
      if (!peers[static_cast<size_t>(r)])
        list.push_back(r);
    return list;
  }

  Status missing(const std::vector<int> &ranks) const {
    return Status::failed(ranksText(ranks, meeting.size) + " did not come to '" +
                          meeting.where + "' within " +
                          std::to_string(meeting.timeout.count()) + " ms");
  }

  /// All bytes, one way; r < 0: of someone not known yet, who has a second.
  Status transfer(int fd, void *data, size_t bytes, bool out, int r) {
    auto *at = static_cast<uint8_t *>(data);
    auto until =
        r < 0 ? std::min(deadline, Clock::now() + std::chrono::seconds(1)) : deadline;
    while (bytes > 0) {
      ssize_t moved = out ? send(fd, at, bytes, MSG_NOSIGNAL) : recv(fd, at, bytes, 0);
      if (moved > 0) {
        at += moved;
        bytes -= static_cast<size_t>(moved);
        continue;
      }
      bool mayCome = moved < 0 && (errno == EAGAIN || errno == EINTR);
      if (!mayCome)
        return Status::failed("rank " + std::to_string(r) + " went away while ranks met");
      if (Clock::now() >= until)
        return missing({std::max(r, 0)});
      pollfd one = {fd, short(out ? POLLOUT : POLLIN), 0};
      poll(&one, 1, 5);
    }
    return Status::success();
  }

  std::string path, host;
  uint16_t port = 0, ownPort = 0;
  uint64_t token = 0;
  Socket listener;
};

} // namespace

Result<std::vector<Socket>> meet(const Meeting &meeting) {
  Meet meet(meeting);
  if (Status status = meet.run(); !status.ok())
    return status;
  return std::move(meet.peers);
}

} // namespace sluice
