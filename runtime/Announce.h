#pragma once
// Words that threads sleep on.

#include <atomic>
#include <cstdint>

namespace sluice {

// std::atomic's notify asks whether anyone sleeps by a load. Were the store before it a
// mere release, the processor could do that load first and the store after the sleeper's
// last look: it would sleep for good. Sequentially consistent stores cannot be passed.

/// Sets `word` and wakes all that wait for it to change.
inline void announce(std::atomic<uint32_t> &word, uint32_t value) {
  word.store(value, std::memory_order_seq_cst);
  word.notify_all();
}

/// The same, one higher.
inline void announceNext(std::atomic<uint32_t> &word) {
  word.fetch_add(1, std::memory_order_seq_cst);
  word.notify_all();
}

/// Until `word` is at least `value`; looks `spins` times before it sleeps.
inline void awaitCount(const std::atomic<uint32_t> &word, uint32_t value, int spins) {
  for (int i = 0; i < spins; ++i) {
    if (word.load(std::memory_order_acquire) >= value)
      return;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  for (;;) {
    uint32_t seen = word.load(std::memory_order_acquire);
    if (seen >= value)
      return;
    word.wait(seen, std::memory_order_acquire);
  }
}

} // namespace sluice
