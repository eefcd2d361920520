#include "runtime/comm/MessageHeader.h"

#include <algorithm>
#include <cstring>

namespace sluice {

/// FNV-1a.
static uint64_t hashOf(const void *data, size_t bytes, uint64_t hash) {
  const uint8_t *at = static_cast<const uint8_t *>(data);
  for (size_t i = 0; i < bytes; ++i)
    hash = (hash ^ at[i]) * 0x100000001b3;
  return hash;
}

static constexpr uint64_t hashStart = 0xcbf29ce484222325;

template <size_t room> static void copyText(std::string_view text, char (&to)[room]) {
  if (!text.empty())
    std::memcpy(to, text.data(), std::min(text.size(), room));
}

template <size_t room> static std::string_view textOf(const char (&text)[room]) {
  return {text, strnlen(text, room)};
}

MessageHeader MessageHeader::of(const CommCall &call) {
  MessageHeader header;
  header.op = static_cast<uint8_t>(call.op);
  header.type = static_cast<uint8_t>(call.type);
  header.elementBytes = call.elementBytes;
  header.peer = call.peer;
  header.index = call.label.index;
  header.update = call.label.update;
  header.bytes = call.bytes;
  header.shardHash =
      hashOf(call.shards.data(), call.shards.size() * sizeof(ElementRange), hashStart);
  header.textHash = hashOf(call.label.program.data(), call.label.program.size(),
                           hashStart + call.label.name.size());
  header.textHash =
      hashOf(call.label.name.data(), call.label.name.size(), header.textHash);
  copyText(call.label.program, header.program);
  copyText(call.label.name, header.name);
  return header;
}

bool MessageHeader::matches(const MessageHeader &other) const {
  MessageHeader mine = *this, theirs = other;
  const auto isPair = [](uint8_t a, uint8_t b) {
    return a == static_cast<uint8_t>(CommOp::send) &&
           b == static_cast<uint8_t>(CommOp::receive);
  };
  if (isPair(op, other.op) || isPair(other.op, op)) {
    mine.op = theirs.op;
    mine.peer = theirs.peer;
  }
  return std::memcmp(&mine, &theirs, sizeof mine) == 0;
}

CommCall MessageHeader::call() const {
  CommCall call;
  call.op = op <= static_cast<uint8_t>(CommOp::barrier) ? static_cast<CommOp>(op)
                                                        : CommOp::barrier;
  call.elementBytes = elementBytes;
  call.peer = peer;
  call.bytes = bytes;
  call.label = {textOf(program), update, textOf(name), index};
  return call;
}

} // namespace sluice
