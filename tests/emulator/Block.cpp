#include "tests/emulator/Block.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <tuple>

using namespace sluice::emulator;

namespace {
constexpr size_t stackBytes = 64 << 10;
constexpr size_t mostFindings = 16;
constexpr uint64_t sectorBytes = 32;
} // namespace

Grid::Grid(const Launch &launch, Entry entry, std::map<char *, ShadowedMemory> &global,
           Report &report)
    : launch(launch), entry(entry), global(global), report(report),
      sharedBytes(launch.sharedBytes + 16), threads(launch.threads),
      warps((launch.threads + warpSize - 1) / warpSize), operands(launch.operands) {
  auto base = reinterpret_cast<uintptr_t>(sharedBytes.data());
  sharedMemory.data = reinterpret_cast<char *>((base + 15) / 16 * 16);
  sharedMemory.bytes = launch.sharedBytes;
  stacks = static_cast<char *>(mmap(nullptr, stackBytes * launch.threads,
                                    PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
}

Grid::~Grid() { munmap(stacks, stackBytes * launch.threads); }

void Grid::run() {
  for (auto &[address, memory] : global)
    for (ByteShadow &byte : memory.shadow) {
      byte.writer = byte.reader = {};
      byte.manyReaders = false;
    }
  for (block = 0; block < launch.blocks; ++block)
    runBlock();
}

void Grid::enterThread(unsigned low, unsigned high) {
  auto *grid = reinterpret_cast<Grid *>(static_cast<uintptr_t>(low) |
                                        static_cast<uintptr_t>(high) << 32);
  grid->entry(grid->operands.data());
  grid->stopThread();
}

void Grid::stopThread() {
  Thread &thread = threads[current];
  thread.state = State::Done;
  swapcontext(&thread.context, &scheduler);
  std::abort(); // a thread that is done is not run again
}

void Grid::runBlock() {
  barriers = 0;
  touches.clear();
  sharedMemory.shadow.assign(sharedMemory.bytes, {});
  std::fill(warps.begin(), warps.end(), Warp());
  auto self = reinterpret_cast<uintptr_t>(this);
  for (int64_t i = 0; i < launch.threads; ++i) {
    Thread &thread = threads[i];
    thread.state = State::Ready;
    thread.turns.clear();
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = stacks + stackBytes * i;
    thread.context.uc_stack.ss_size = stackBytes;
    thread.context.uc_link = nullptr;
    makecontext(&thread.context, reinterpret_cast<void (*)()>(&Grid::enterThread), 2,
                static_cast<unsigned>(self), static_cast<unsigned>(self >> 32));
  }
  while (true) {
    if (runReady())
      continue;
    int64_t waiting = std::count_if(threads.begin(), threads.end(), [](const Thread &t) {
      return t.state != State::Done;
    });
    if (waiting == 0)
      break;
    bool allAtBarrier = std::all_of(threads.begin(), threads.end(), [](const Thread &t) {
      return t.state == State::AtBarrier;
    });
    if (!allAtBarrier) {
      find(Fault::BarrierDivergence, std::to_string(waiting) + " of " +
                                         std::to_string(launch.threads) +
                                         " threads wait for the others");
      return;
    }
    ++barriers;
    for (Thread &thread : threads)
      thread.state = State::Ready;
  }
  countTouches();
}

/// Runs every thread that can run until it waits or ends; false: none could.
bool Grid::runReady() {
  bool any = false;
  for (int64_t i = 0; i < launch.threads; ++i) {
    current = (i + launch.firstThread) % launch.threads;
    if (threads[current].state != State::Ready)
      continue;
    any = true;
    swapcontext(&scheduler, &threads[current].context);
  }
  return any;
}

void Grid::wait(State state) {
  Thread &thread = threads[current];
  thread.state = state;
  swapcontext(&thread.context, &scheduler);
}

int32_t Grid::readRegister(Register which, int axis) const {
  if (axis != 0)
    return which == Register::BlockSize || which == Register::GridSize;
  switch (which) {
  case Register::Thread:
    return static_cast<int32_t>(current);
  case Register::Block:
    return static_cast<int32_t>(block);
  case Register::BlockSize:
    return static_cast<int32_t>(launch.threads);
  case Register::GridSize:
    return static_cast<int32_t>(launch.blocks);
  case Register::Lane:
    return static_cast<int32_t>(current % warpSize);
  }
  return 0;
}

void Grid::barrier() { wait(State::AtBarrier); }

/// The last of `lanes` frees the others.
void Grid::arrive(uint32_t lanes) {
  Warp &warp = currentWarp();
  if (warp.arrived != 0 && warp.wanted != lanes)
    find(Fault::BarrierDivergence, "lanes of a warp name different partners");
  warp.wanted = lanes;
  warp.arrived |= 1u << (current % warpSize);
  if (warp.arrived != warp.wanted)
    return wait(State::AtWarpSync);
  if (warp.isShuffle)
    shuffleAll(warp);
  ++warp.syncs;
  warp.arrived = 0;
  int64_t first = current / warpSize * warpSize;
  for (int64_t i = first; i < std::min(first + warpSize, launch.threads); ++i)
    if (threads[i].state == State::AtWarpSync)
      threads[i].state = State::Ready;
}

void Grid::warpSync(uint32_t lanes) {
  currentWarp().isShuffle = false;
  arrive(lanes);
}

int32_t Grid::shuffle(Shuffle kind, uint32_t lanes, int32_t value, int32_t operand,
                      int32_t clamp) {
  Warp &warp = currentWarp();
  int64_t lane = current % warpSize;
  warp.isShuffle = true;
  warp.kind = kind;
  warp.values[lane] = value;
  warp.operands[lane] = operand;
  warp.clamps[lane] = clamp;
  arrive(lanes);
  return warp.results[lane];
}

// PTX ISA, shfl.sync: the clamp operand holds the last lane and the mask of segments.
void Grid::shuffleAll(Warp &warp) {
  for (int lane = 0; lane < warpSize; ++lane) {
    int last = warp.clamps[lane] & 31, segments = warp.clamps[lane] >> 8 & 31;
    int most = (lane & segments) | (last & ~segments), least = lane & segments;
    int operand = warp.operands[lane] & 31, source = lane;
    bool inside = true;
    switch (warp.kind) {
    case Shuffle::Up:
      source = lane - operand;
      inside = source >= least;
      break;
    case Shuffle::Down:
      source = lane + operand;
      inside = source <= most;
      break;
    case Shuffle::Xor:
      source = lane ^ operand;
      inside = source <= most;
      break;
    case Shuffle::Index:
      source = least | (operand & ~segments);
      inside = source <= most;
      break;
    }
    warp.results[lane] = warp.values[inside ? source : lane];
  }
}

const char *sluice::emulator::faultName(Fault fault) {
  switch (fault) {
  case Fault::OutOfBounds:
    return "access outside of all buffers";
  case Fault::Misaligned:
    return "misaligned access";
  case Fault::UnwrittenRead:
    return "read of memory that was never written";
  case Fault::Race:
    return "race";
  case Fault::BarrierDivergence:
    return "divergent barrier";
  }
  return "";
}

bool Report::has(Fault fault) const {
  return std::any_of(findings.begin(), findings.end(),
                     [&](const Finding &finding) { return finding.fault == fault; });
}

void Grid::find(Fault fault, const std::string &what) {
  if (found[static_cast<int>(fault)]++ > 0 && report.findings.size() >= mostFindings)
    return;
  report.findings.push_back({fault, launch.kernel + ": " + faultName(fault) + ": " +
                                        what + " (block " + std::to_string(block) +
                                        ", thread " + std::to_string(current) + ")"});
}

ShadowedMemory *Grid::memoryOf(char *address, int64_t bytes) {
  auto holds = [&](ShadowedMemory &memory) {
    return address >= memory.data && address + bytes <= memory.data + memory.bytes;
  };
  if (holds(sharedMemory))
    return &sharedMemory;
  auto after = global.upper_bound(address);
  if (after == global.begin())
    return nullptr;
  ShadowedMemory &memory = std::prev(after)->second;
  return holds(memory) ? &memory : nullptr;
}

Stamp Grid::now() {
  return {block * launch.threads + current, barriers, currentWarp().syncs};
}

bool Grid::isOrdered(const Stamp &before, const Stamp &now) const {
  if (before.thread < 0 || before.thread == now.thread)
    return true;
  if (before.thread / launch.threads != now.thread / launch.threads)
    return false;
  if (before.barriers < now.barriers)
    return true;
  return before.thread % launch.threads / warpSize ==
             now.thread % launch.threads / warpSize &&
         before.warpSyncs < now.warpSyncs;
}

void Grid::checkByte(ByteShadow &byte, bool isStore, const Stamp &now,
                     const char *space) {
  auto race = [&](const char *what, const Stamp &other) {
    find(Fault::Race, std::string(what) + " in " + space + " memory, with thread " +
                          std::to_string(other.thread % launch.threads) + " of block " +
                          std::to_string(other.thread / launch.threads));
  };
  if (!isOrdered(byte.writer, now))
    race(isStore ? "two writes" : "read beside a write", byte.writer);
  if (!isStore) {
    if (!byte.isWritten)
      find(Fault::UnwrittenRead, std::string("in ") + space + " memory");
    if (byte.reader.thread != now.thread)
      byte.manyReaders = !isOrdered(byte.reader, now);
    else if (byte.reader.barriers != now.barriers)
      byte.manyReaders = false;
    byte.reader = now;
    return;
  }
  bool others = byte.manyReaders && byte.reader.thread == now.thread &&
                byte.reader.barriers == now.barriers;
  if (!isOrdered(byte.reader, now) || others)
    race("write beside a read", byte.reader);
  byte.reader = {};
  byte.manyReaders = false;
  byte.writer = now;
  byte.isWritten = true;
}

bool Grid::isInRange(const ShadowedMemory &memory, char *address, int64_t bytes) const {
  if (launch.ranges.empty() || &memory == &sharedMemory)
    return true;
  return std::any_of(launch.ranges.begin(), launch.ranges.end(), [&](auto &range) {
    return address >= range.first && address + bytes <= range.first + range.second;
  });
}

void Grid::access(char *address, int64_t bytes, int64_t alignment, bool isStore,
                  int32_t instruction) {
  ShadowedMemory *memory = memoryOf(address, bytes);
  if (!memory || !isInRange(*memory, address, bytes)) {
    find(Fault::OutOfBounds, std::string(isStore ? "store" : "load") + " of " +
                                 std::to_string(bytes) + " bytes");
    stopThread();
  }
  if (reinterpret_cast<uintptr_t>(address) % alignment != 0)
    find(Fault::Misaligned,
         std::to_string(bytes) + " bytes at a multiple of " + std::to_string(alignment));
  bool isShared = memory == &sharedMemory;
  size_t first = address - memory->data;
  for (int64_t i = 0; i < bytes; ++i)
    checkByte(memory->shadow[first + i], isStore, now(), isShared ? "shared" : "global");
  if (launch.countsTraffic)
    touches.push_back({current / warpSize, instruction,
                       threads[current].turns[instruction]++, current,
                       isShared ? first : reinterpret_cast<uint64_t>(address),
                       static_cast<uint64_t>(bytes), isStore, isShared});
}

// A warp's accesses by one instruction are one request.
void Grid::countTouches() {
  std::sort(touches.begin(), touches.end(), [](const Touch &a, const Touch &b) {
    return std::tuple(a.key(), a.thread) < std::tuple(b.key(), b.thread);
  });
  for (size_t from = 0; from < touches.size();) {
    size_t to = from;
    while (to < touches.size() && touches[to].key() == touches[from].key())
      ++to;
    std::vector<Touch> group(touches.begin() + from, touches.begin() + to);
    from = to;
    if (group.front().isShared) {
      countShared(group);
      continue;
    }
    std::set<uint64_t> sectors;
    for (const Touch &touch : group)
      for (uint64_t s = touch.address / sectorBytes;
           s <= (touch.address + touch.bytes - 1) / sectorBytes; ++s)
        sectors.insert(s);
    (group.front().isStore ? report.bytesStored : report.bytesLoaded) +=
        static_cast<int64_t>(sectors.size() * sectorBytes);
  }
}

// 32 banks of 4 bytes; a request of more than 128 bytes is served in turns of so many
// lanes. Lanes that read one word share it.
void Grid::countShared(const std::vector<Touch> &group) {
  size_t lanes = group.front().bytes <= 4 ? 32 : group.front().bytes <= 8 ? 16 : 8;
  for (size_t from = 0; from < group.size(); from += lanes) {
    std::map<uint64_t, std::set<uint64_t>> banks;
    for (size_t i = from; i < std::min(from + lanes, group.size()); ++i)
      for (uint64_t word = group[i].address / 4;
           word <= (group[i].address + group[i].bytes - 1) / 4; ++word)
        banks[word % 32].insert(word);
    size_t turns = 0;
    for (const auto &[bank, words] : banks)
      turns = std::max(turns, words.size());
    report.bankConflicts += static_cast<int64_t>(turns) - 1;
  }
}
