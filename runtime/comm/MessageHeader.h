#pragma once
// What a rank tells the others when it comes to a call, so that all see whether they are
// at the same one.

#include "runtime/comm/Communicator.h"

namespace sluice {

/// As it goes over the wire; all ranks have the same processors' order of bytes. Compared
/// whole, so there is no padding.
struct MessageHeader {
  uint8_t op = 0; ///< CommOp, or `leaving`
  uint8_t type = 0;
  uint16_t unused = 0;
  uint32_t elementBytes = 0;
  int32_t peer = 0;
  uint32_t index = 0;
  int64_t update = 0;
  uint64_t bytes = 0;
  uint64_t shardHash = 0;
  uint64_t textHash = 0; ///< of program and name in full
  char program[48] = {};
  char name[160] = {};

  static constexpr uint8_t leaving = 255;

  static MessageHeader of(const CommCall &call);

  bool matches(const MessageHeader &other) const;
  /// For texts: shards and parts are missing, long names are cut. Valid as long as this.
  CommCall call() const;
};
static_assert(sizeof(MessageHeader) == 256);

} // namespace sluice
