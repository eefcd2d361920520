#pragma once
// FNV-1a, 64 bit: guards plan files and checkpoints against truncation and decay, not
// against forgery.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace sluice {

constexpr uint64_t fnvStart = 0xcbf29ce484222325ull;

/// Continues `hash` over `size` bytes.
inline uint64_t fnv1a(const void *data, size_t size, uint64_t hash = fnvStart) {
  const uint8_t *bytes = static_cast<const uint8_t *>(data);
  for (size_t i = 0; i < size; ++i)
    hash = (hash ^ bytes[i]) * 0x100000001b3ull;
  return hash;
}

/// The same recurrence over little-endian 64-bit words, eight times as fast, for
/// gigabytes of tensors. Pieces may have any size; the last word is filled up with zeros.
class WordChecksum {
public:
  void add(const void *data, size_t size) {
    const uint8_t *bytes = static_cast<const uint8_t *>(data);
    while (size > 0 && pendingBytes > 0)
      addByte(*bytes++), --size;
    for (; size >= 8; size -= 8, bytes += 8) {
      uint64_t word;
      std::memcpy(&word, bytes, 8);
      addWord(word);
    }
    while (size-- > 0)
      addByte(*bytes++);
  }

  uint64_t value() const { return pendingBytes == 0 ? hash : (hash ^ pending) * prime; }

private:
  static constexpr uint64_t prime = 0x100000001b3ull;
  void addWord(uint64_t word) { hash = (hash ^ word) * prime; }
  void addByte(uint8_t byte) {
    pending |= uint64_t(byte) << (8 * pendingBytes);
    if (++pendingBytes < 8)
      return;
    addWord(pending);
    pending = 0;
    pendingBytes = 0;
  }

  uint64_t hash = fnvStart;
  uint64_t pending = 0;
  int pendingBytes = 0;
};

} // namespace sluice
