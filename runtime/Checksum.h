#pragma once
// FNV-1a, 64 bit: guards plan files and checkpoints against truncation and decay, not
// against forgery.

#include <cstddef>
#include <cstdint>

namespace sluice {

constexpr uint64_t fnvStart = 0xcbf29ce484222325ull;

/// Continues `hash` over `size` bytes.
inline uint64_t fnv1a(const void *data, size_t size, uint64_t hash = fnvStart) {
  const uint8_t *bytes = static_cast<const uint8_t *>(data);
  for (size_t i = 0; i < size; ++i)
    hash = (hash ^ bytes[i]) * 0x100000001b3ull;
  return hash;
}

} // namespace sluice
