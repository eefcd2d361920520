#pragma once
// One block of CUDA threads at a time: fibers, barriers, shuffles, and a shadow of every
// byte they touch.

#include "tests/emulator/Emulator.h"
#include "tests/emulator/HostModule.h"

#include <ucontext.h>

#include <array>
#include <map>

namespace sluice::emulator {

/// Who touched a byte, and when: two accesses of different threads are ordered by a
/// barrier of the block or of the warp between them, or not at all.
struct Stamp {
  int64_t thread = -1; // in the grid; -1: nobody
  uint32_t barriers = 0, warpSyncs = 0;
};

struct ByteShadow {
  Stamp writer, reader;
  bool isWritten = false;
  bool manyReaders = false; // of one time
};

struct ShadowedMemory {
  char *data = nullptr;
  size_t bytes = 0;
  std::vector<ByteShadow> shadow;
};

class Grid;

/// The memory, order and threads of a launch.
class Grid {
public:
  using Entry = void (*)(void **operands);

  Grid(const Launch &launch, Entry entry, std::map<char *, ShadowedMemory> &global,
       Report &report);
  ~Grid();
  void run();

  // Called by the kernel's code, in the fiber of the current thread.
  int32_t readRegister(Register which, int axis) const;
  char *shared() { return sharedMemory.data; }
  void access(char *address, int64_t bytes, int64_t alignment, bool isStore,
              int32_t instruction);
  void barrier();
  void warpSync(uint32_t lanes);
  int32_t shuffle(Shuffle kind, uint32_t lanes, int32_t value, int32_t operand,
                  int32_t clamp);

private:
  static constexpr int64_t warpSize = 32;
  enum class State { Ready, AtBarrier, AtWarpSync, Done };
  struct Thread {
    ucontext_t context;
    State state = State::Ready;
    std::map<int32_t, int64_t> turns; // of each access, so far
  };
  struct Warp {
    uint32_t wanted = 0, arrived = 0, syncs = 0;
    Shuffle kind = Shuffle::Xor;
    bool isShuffle = false;
    std::array<int32_t, warpSize> values{}, operands{}, clamps{}, results{};
  };
  struct Touch {
    int64_t warp;
    int32_t instruction;
    int64_t turn;
    int64_t thread;
    uint64_t address, bytes;
    bool isStore, isShared;
    auto key() const { return std::tuple(warp, instruction, turn); }
  };

  static void enterThread(unsigned low, unsigned high);
  void runBlock();
  bool runReady();
  void wait(State state);
  void arrive(uint32_t lanes);
  void shuffleAll(Warp &warp);
  void find(Fault fault, const std::string &what);
  [[noreturn]] void stopThread();
  ShadowedMemory *memoryOf(char *address, int64_t bytes);
  bool isInRange(const ShadowedMemory &memory, char *address, int64_t bytes) const;
  void checkByte(ByteShadow &byte, bool isStore, const Stamp &now, const char *space);
  bool isOrdered(const Stamp &before, const Stamp &now) const;
  Warp &currentWarp() { return warps[current / warpSize]; }
  Stamp now();
  void countTouches();
  void countShared(const std::vector<Touch> &group);

  const Launch &launch;
  Entry entry;
  std::map<char *, ShadowedMemory> &global;
  Report &report;
  ShadowedMemory sharedMemory;
  std::vector<char> sharedBytes;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::vector<Touch> touches;
  std::array<int, 5> found{};
  char *stacks = nullptr;
  ucontext_t scheduler;
  std::vector<void *> operands;
  int64_t block = 0, current = 0;
  uint32_t barriers = 0;
};

} // namespace sluice::emulator
