// The state of a replay buffer as bytes: little-endian words, then the samples kept.

#include "runtime/replay/ReplayBuffer.h"

#include <cstring>

namespace sluice {
namespace {

constexpr uint64_t magic = 0x31595241'4c504552; // "REPLARY1"

class Writer {
public:
  void word(uint64_t value) { raw(&value, sizeof value); }
  void number(double value) { raw(&value, sizeof value); }
  void text(const std::string &value) {
    word(value.size());
    raw(value.data(), value.size());
  }
  void raw(const void *from, size_t count) {
    auto *first = static_cast<const uint8_t *>(from);
    bytes.insert(bytes.end(), first, first + count);
  }
  std::vector<uint8_t> bytes;
};

/// Reads what Writer wrote; `ok` turns false where the bytes end early.
class Source {
public:
  explicit Source(std::span<const uint8_t> bytes) : bytes(bytes) {}
  uint64_t word() { return value<uint64_t>(); }
  double number() { return value<double>(); }
  std::string text() {
    auto part = raw(word());
    return {part.begin(), part.end()};
  }
  std::span<const uint8_t> raw(uint64_t count) {
    if (count > bytes.size()) {
      ok = false;
      return {};
    }
    auto part = bytes.first(count);
    bytes = bytes.subspan(count);
    return part;
  }
  bool atEnd() const { return bytes.empty(); }
  bool ok = true;

private:
  template <class T> T value() {
    T read{};
    auto part = raw(sizeof(T));
    if (ok)
      std::memcpy(&read, part.data(), sizeof(T));
    return read;
  }
  std::span<const uint8_t> bytes;
};

Status damaged(const std::string &what) {
  return Status::damaged("the state of the replay buffer is damaged: " + what);
}

} // namespace

std::vector<uint8_t> ReplayBuffer::state() const {
  Writer out;
  out.word(magic);
  out.text(toText(options.policy));
  out.word(options.capacityBytes);
  out.word(options.seed);
  out.word(fieldList.size());
  for (const ReplayField &field : fieldList) {
    out.text(field.name);
    out.word(field.bytes);
  }
  out.word(static_cast<uint64_t>(seenCount));
  out.word(static_cast<uint64_t>(ringNext));
  out.word(labels.size());
  out.raw(labels.data(), labels.size() * sizeof(int64_t));
  out.raw(tasks.data(), tasks.size() * sizeof(int64_t));
  out.word(byClass.size());
  for (auto &[label, places] : byClass) { // in their order, which draws depend on
    out.word(static_cast<uint64_t>(label));
    out.word(places.size());
    out.raw(places.data(), places.size() * sizeof(int64_t));
  }
  out.word(seenOfClass.size());
  for (auto &[label, count] : seenOfClass) {
    auto largest = wasLargest.find(label);
    out.word(static_cast<uint64_t>(label));
    out.word(static_cast<uint64_t>(count));
    out.word(largest != wasLargest.end() && largest->second);
  }
  out.word(forgetting.size());
  for (auto &[task, lost] : forgetting) {
    out.word(static_cast<uint64_t>(task));
    out.number(lost);
  }
  out.raw(data.data(), labels.size() * sampleBytes);
  return std::move(out.bytes);
}

/// Reads a state into a copy of a buffer.
class ReplayReader {
public:
  ReplayReader(std::span<const uint8_t> bytes, const ReplayBuffer &buffer)
      : in(bytes), read(buffer) {}

  Status run() {
    if (in.word() != magic)
      return damaged("it does not begin as one");
    Status (ReplayReader::*parts[])() = {&ReplayReader::options, &ReplayReader::fields,
                                         &ReplayReader::samples, &ReplayReader::classes,
                                         &ReplayReader::history};
    for (auto part : parts) {
      if (Status status = (this->*part)(); !status.ok())
        return in.ok ? status : damaged("it ends early");
      if (!in.ok)
        return damaged("it ends early");
    }
    auto content = in.raw(read.labels.size() * read.sampleBytes);
    if (!in.ok || !in.atEnd())
      return damaged(in.ok ? "bytes follow its end" : "it ends early");
    if (!content.empty())
      std::memcpy(read.data.data(), content.data(), content.size());
    return Status::success();
  }
  ReplayBuffer take() { return std::move(read); }

private:
  Status options() {
    std::string policy = in.text();
    uint64_t capacity = in.word();
    read.options.seed = in.word();
    if (policy != toText(read.options.policy))
      return Status::refused("the replay buffer was saved with policy " + policy +
                             ", expected " + toText(read.options.policy));
    if (capacity != read.options.capacityBytes)
      return Status::refused("the replay buffer was saved with " +
                             std::to_string(capacity) + " bytes, expected " +
                             std::to_string(read.options.capacityBytes));
    return Status::success();
  }

  Status fields() {
    uint64_t count = in.word();
    if (count != read.fieldList.size())
      return Status::refused("the replay buffer was saved with " + std::to_string(count) +
                             " inputs, expected " +
                             std::to_string(read.fieldList.size()));
    for (const ReplayField &field : read.fieldList) {
      std::string name = in.text();
      uint64_t size = in.word();
      if (name != field.name || size != field.bytes)
        return Status::refused("the replay buffer was saved with input '" + name +
                               "' of " + std::to_string(size) +
                               " bytes a sample, expected '" + field.name + "' of " +
                               std::to_string(field.bytes));
    }
    return Status::success();
  }

  Status samples() {
    read.seenCount = static_cast<int64_t>(in.word());
    read.ringNext = static_cast<int64_t>(in.word());
    uint64_t kept = in.word();
    if (kept > static_cast<uint64_t>(read.most) || read.ringNext < 0 ||
        read.ringNext >= read.most || read.seenCount < static_cast<int64_t>(kept))
      return damaged("its counts are impossible");
    words(read.labels, kept);
    words(read.tasks, kept);
    return Status::success();
  }

  /// Every sample is in its class, once.
  Status classes() {
    read.byClass.clear();
    read.slotOf.assign(read.labels.size(), -1);
    size_t placed = 0;
    for (uint64_t left = in.word(); in.ok && left > 0; --left) {
      auto label = static_cast<int64_t>(in.word());
      uint64_t count = in.word();
      if (count > read.labels.size())
        return damaged("a class has more samples than there are");
      std::vector<int64_t> &places = read.byClass[label];
      words(places, count);
      for (size_t slot = 0; slot < places.size(); ++slot) {
        auto place = static_cast<uint64_t>(places[slot]);
        if (place >= read.labels.size() || read.labels[place] != label ||
            read.slotOf[place] >= 0)
          return damaged("a class names a sample of another one, or twice");
        read.slotOf[place] = static_cast<int64_t>(slot);
        ++placed;
      }
    }
    return placed == read.labels.size() ? Status::success()
                                        : damaged("samples are in no class");
  }

  Status history() {
    read.seenOfClass.clear();
    read.wasLargest.clear();
    for (uint64_t left = in.word(); in.ok && left > 0; --left) {
      auto label = static_cast<int64_t>(in.word());
      read.seenOfClass[label] = static_cast<int64_t>(in.word());
      read.wasLargest[label] = in.word() != 0;
    }
    read.forgetting.clear();
    for (uint64_t left = in.word(); in.ok && left > 0; --left) {
      auto task = static_cast<int64_t>(in.word());
      read.forgetting[task] = in.number();
    }
    return Status::success();
  }

  void words(std::vector<int64_t> &into, uint64_t count) {
    auto part = in.raw(count * sizeof(int64_t));
    into.assign(in.ok ? count : 0, 0);
    if (!into.empty())
      std::memcpy(into.data(), part.data(), part.size());
  }

  Source in;
  ReplayBuffer read;
};

Status ReplayBuffer::restore(std::span<const uint8_t> bytes) {
  ReplayReader reader(bytes, *this);
  Status status = reader.run();
  if (status.ok())
    *this = reader.take();
  return status;
}

} // namespace sluice
