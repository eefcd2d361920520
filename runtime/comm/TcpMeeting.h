#pragma once
// How ranks without a launcher find each other: rank 0 listens where all know of, the
// others come to it, and it tells each where the rest are. Then every pair is connected.

#include "runtime/Status.h"

#include <chrono>
#include <string>
#include <vector>

namespace sluice {

/// A file descriptor that is closed with its owner; -1: none.
class Socket {
public:
  explicit Socket(int fd = -1) : fd(fd) {}
  Socket(Socket &&other) noexcept : fd(std::exchange(other.fd, -1)) {}
  Socket &operator=(Socket &&other) noexcept {
    std::swap(fd, other.fd);
    return *this;
  }
  ~Socket();
  int get() const { return fd; }
  explicit operator bool() const { return fd >= 0; }

private:
  int fd;
};

struct Meeting {
  /// "tcp:HOST:PORT", where rank 0 listens, or "file:PATH": a file that all ranks see and
  /// rank 0 writes the address into. It must not be there before, and is gone afterwards.
  std::string where;
  int rank = 0, size = 1;
  std::chrono::milliseconds timeout{60000};
};

/// By rank; none for the own one. Who does not come within the timeout is named.
Result<std::vector<Socket>> meet(const Meeting &meeting);

} // namespace sluice
