#pragma once
// Executes the tile instructions of AMX for processors that have none: each is an illegal
// instruction there, and the handler of that signal does what it stands for. So the
// machine code of level `amx` itself is tested, its configuration, registers and
// addresses included.

#include <csignal>

namespace sluice::test {

/// While one lives, tile instructions of this thread work. One at a time.
class TileTrap {
public:
  TileTrap();
  ~TileTrap();
  TileTrap(const TileTrap &) = delete;
  TileTrap &operator=(const TileTrap &) = delete;

  /// Instructions executed so far by this process.
  static long executed();

private:
  struct sigaction former;
};

} // namespace sluice::test
