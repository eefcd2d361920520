#pragma once
// Decompression with a limit on what comes out, as the size a file states is not trusted.

#include "runtime/Status.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sluice {

enum class Deflated { Gzip, Raw };

/// Decompresses to the end of the stream, at most `limit` bytes (more is damaged).
/// `origin` is for messages.
Result<std::shared_ptr<std::vector<uint8_t>>> inflateBytes(std::span<const uint8_t> bytes,
                                                           Deflated format, size_t limit,
                                                           const std::string &origin);

inline bool isGzip(std::span<const uint8_t> bytes) {
  return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

} // namespace sluice
