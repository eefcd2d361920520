#pragma once
// Runs CUDA kernels on the CPU: the LLVM IR of a kernel at NVVM level, compiled for the
// host, with one fiber per CUDA thread. What no GPU tells is reported: accesses outside
// of buffers and misaligned ones, reads of memory that nobody wrote, races, and barriers
// that not all threads reach. Counts what the memory system would move.

#include "llvm/Support/Error.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace sluice::emulator {

enum class Fault { OutOfBounds, Misaligned, UnwrittenRead, Race, BarrierDivergence };
const char *faultName(Fault fault);

struct Finding {
  Fault fault;
  std::string text; // kernel, block, thread, address
};

struct Report {
  std::vector<Finding> findings; // at most 16; the first of each kind is always there
  /// Sectors of 32 bytes of global memory, per instruction of a warp, as bytes.
  int64_t bytesLoaded = 0, bytesStored = 0;
  /// Turns that accesses to shared memory take beyond those their bytes need.
  int64_t bankConflicts = 0;

  bool has(Fault fault) const;
};

struct Launch {
  std::string kernel;
  int64_t blocks = 1, threads = 32, sharedBytes = 0;
  std::vector<void *> operands; // addresses in added buffers
  /// Threads run in this order, turned by so many: races show in any.
  int64_t firstThread = 0;
  /// Parts of the added buffers that the kernel may touch, address and bytes; none: all.
  std::vector<std::pair<char *, size_t>> ranges = {};
  bool countsTraffic = true; // false: runs faster
};

class Emulator {
public:
  /// Fails for an intrinsic that is not emulated, naming it.
  static llvm::Expected<std::unique_ptr<Emulator>> create(const std::string &bitcode);
  virtual ~Emulator() = default;

  /// Global memory that kernels may touch; `isWritten`: it has a value.
  virtual void addBuffer(void *data, size_t bytes, bool isWritten) = 0;
  /// The bytes of an added buffer have a value, or lose it.
  virtual void mark(void *data, size_t bytes, bool isWritten) = 0;
  virtual llvm::Expected<Report> run(const Launch &launch) = 0;
};

} // namespace sluice::emulator
