#pragma once
// Walks through the bytes of a message that is a list of parts.

#include "runtime/comm/Communicator.h"

#include <algorithm>

namespace sluice {

class MessageCursor {
public:
  /// At byte `offset` of the message.
  void seek(std::span<const Part> list, uint64_t offset) {
    parts = list;
    part = 0;
    at = offset;
    skip();
  }
  uint8_t *data() const { return static_cast<uint8_t *>(parts[part].data) + at; }
  /// Bytes that lie together from here on; 0 at the end.
  uint64_t contiguous() const { return part < parts.size() ? parts[part].bytes - at : 0; }
  /// By at most contiguous().
  void advance(uint64_t bytes) {
    at += bytes;
    skip();
  }

private:
  void skip() {
    while (part < parts.size() && at >= parts[part].bytes)
      at -= parts[part++].bytes;
  }

  std::span<const Part> parts;
  size_t part = 0;
  uint64_t at = 0;
};

} // namespace sluice
