#pragma once
// Memory of a plan's reservation: the caller's, from the caller's allocator, or mapped
// once from the system.

#include "runtime/Status.h"

#include <cstddef>
#include <cstdint>

namespace sluice {

constexpr size_t reservationAlignment = 64;

/// Both or neither function. `allocate` returns null when there is no memory.
struct AllocatorHooks {
  void *(*allocate)(size_t bytes, size_t alignment, void *user) = nullptr;
  void (*release)(void *memory, size_t bytes, void *user) = nullptr;
  void *user = nullptr;
};

/// Memory the caller lends for the life of a session; null when not given.
struct LentMemory {
  void *data = nullptr;
  uint64_t bytes = 0;
};

class Reservation {
public:
  Reservation() = default;
  ~Reservation() { reset(); }
  Reservation(Reservation &&other) noexcept {
    *this = static_cast<Reservation &&>(other);
  }
  Reservation &operator=(Reservation &&other) noexcept;

  /// `what` is "state" or "step", for messages. Mapped memory is zero; other memory is as
  /// it was.
  static Result<Reservation> make(const char *what, uint64_t bytes, LentMemory lent,
                                  const AllocatorHooks &hooks);

  uint8_t *data() const { return memory; }
  uint64_t bytes() const { return size; }
  /// Mapped by make(), so every byte that was never written is 0.
  bool isFresh() const { return owner == Owner::system; }

private:
  enum class Owner { caller, hooks, system };
  void reset();
  Status lend(const char *what, LentMemory lent);
  Status ask(const char *what, const AllocatorHooks &given);
  Status map(const char *what);

  uint8_t *memory = nullptr;
  uint64_t size = 0;
  Owner owner = Owner::caller;
  AllocatorHooks hooks;
  void *mapping =
      nullptr; // of the system, larger than `size` so that `memory` is aligned
  uint64_t mappingBytes = 0;
};

} // namespace sluice
