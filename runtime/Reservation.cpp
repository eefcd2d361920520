#include "runtime/Reservation.h"

#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <utility>

namespace sluice {

constexpr uint64_t hugePageBytes = 2 << 20;

Reservation &Reservation::operator=(Reservation &&other) noexcept {
  if (this == &other)
    return *this;
  reset();
  memory = std::exchange(other.memory, nullptr);
  size = std::exchange(other.size, 0);
  owner = std::exchange(other.owner, Owner::caller);
  hooks = other.hooks;
  mapping = std::exchange(other.mapping, nullptr);
  mappingBytes = other.mappingBytes;
  return *this;
}

void Reservation::reset() {
  if (owner == Owner::system && mapping)
    munmap(mapping, mappingBytes);
  if (owner == Owner::hooks && memory)
    hooks.release(memory, size, hooks.user);
  memory = nullptr;
  mapping = nullptr;
}

static Status noMemory(const char *what, uint64_t bytes) {
  return Status::doesNotFit("the " + std::string(what) + " reservation of " +
                            std::to_string(bytes) +
                            " bytes does not fit in the memory of this machine; compile "
                            "with a smaller --memory or batch");
}

/// Linux promises more memory than there is and ends the process later; this refuses what
/// cannot ever fit.
static bool exceedsMachine(uint64_t bytes) {
  struct sysinfo info = {};
  if (sysinfo(&info) != 0)
    return false;
  uint64_t total = (uint64_t(info.totalram) + info.totalswap) * info.mem_unit;
  return bytes > total;
}

static bool isAligned(const void *memory) {
  return reinterpret_cast<uintptr_t>(memory) % reservationAlignment == 0;
}

Status Reservation::lend(const char *what, LentMemory lent) {
  if (!isAligned(lent.data))
    return Status::usage("the memory given for the " + std::string(what) +
                         " reservation is not aligned to " +
                         std::to_string(reservationAlignment) + " bytes");
  if (lent.bytes < size)
    return Status::doesNotFit("the memory given for the " + std::string(what) +
                              " reservation has " + std::to_string(lent.bytes) +
                              " bytes, the plan needs " + std::to_string(size));
  memory = static_cast<uint8_t *>(lent.data);
  return Status::success();
}

Status Reservation::ask(const char *what, const AllocatorHooks &given) {
  owner = Owner::hooks;
  hooks = given;
  size = size > 0 ? size : reservationAlignment;
  memory = static_cast<uint8_t *>(hooks.allocate(size, reservationAlignment, hooks.user));
  if (!memory)
    return Status::doesNotFit("the allocator given has no " + std::to_string(size) +
                              " bytes for the " + what + " reservation");
  if (!isAligned(memory))
    return Status::usage("the allocator given returns memory that is not aligned to " +
                         std::to_string(reservationAlignment) + " bytes");
  return Status::success();
}

Status Reservation::map(const char *what) {
  if (exceedsMachine(size))
    return noMemory(what, size);
  // Whole huge pages where they pay: products walk megabytes of weights.
  uint64_t alignment = size >= 2 * hugePageBytes ? hugePageBytes : 4096;
  owner = Owner::system;
  mappingBytes = (size + 2 * alignment - 1) / alignment * alignment;
  void *mapped = mmap(nullptr, mappingBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED)
    return noMemory(what, size);
  mapping = mapped;
  uint64_t address = reinterpret_cast<uintptr_t>(mapped);
  uint64_t aligned = (address + alignment - 1) / alignment * alignment;
  memory = static_cast<uint8_t *>(mapped) + (aligned - address);
  if (alignment == hugePageBytes)
    (void)madvise(memory, size, MADV_HUGEPAGE);
  return Status::success();
}

Result<Reservation> Reservation::make(const char *what, uint64_t bytes, LentMemory lent,
                                      const AllocatorHooks &hooks) {
  Reservation result;
  result.size = bytes;
  Status status = lent.data        ? result.lend(what, lent)
                  : hooks.allocate ? result.ask(what, hooks)
                                   : result.map(what);
  if (!status.ok())
    return status;
  return result;
}

} // namespace sluice
