#pragma once
// Watches the red zones of a plan compiled with CompileOptions::redZoneBytes while its
// programs run: those of the reservations of device and host.

#include "runtime/Plan.h"

#include <cstring>
#include <set>
#include <string>
#include <vector>

namespace sluice {

/// The reservations of one memory.
struct WatchedMemory {
  fbs::Space stateSpace = fbs::Space::state, stepSpace = fbs::Space::step;
  uint8_t *state = nullptr, *step = nullptr;
};

/// The zones of one memory. What a buffer's life is counted in, launches or copies, are
/// its moments; all are seen by one thread.
class ZoneWatch {
public:
  static constexpr uint8_t pattern = 0xA5; // what the step reservation is filled with too

  /// The state's zones are filled here, once; those of a step buffer when it goes live.
  ZoneWatch(const Plan &plan, int64_t zone, const WatchedMemory &memory)
      : plan(plan), zone(zone), memory(memory) {
    std::set<std::pair<uint64_t, uint64_t>> tensors; // begin, end
    for (const fbs::StateTensor *tensor : *plan.raw().state())
      if (tensor->size() > 0 && tensor->space() == memory.stateSpace)
        tensors.insert({tensor->offset(), tensor->offset() + tensor->size()});
    uint64_t end = 0;
    for (auto [begin, next] : tensors) {
      stateGaps.push_back({end, begin - end});
      end = next;
    }
    for (auto [begin, size] : stateGaps)
      std::memset(memory.state + begin, pattern, size);
  }

  /// Before (true) and after a launch or copy: as SessionOptions::aroundLaunch, or
  /// aroundCopy for the host's memory.
  void moment(uint32_t programIndex, uint32_t index, bool isBefore) {
    const fbs::Program &program = *plan.raw().programs()->Get(programIndex);
    auto at = static_cast<int32_t>(index);
    for (uint32_t b = 0; b < sizeOf(program.buffers()); ++b) {
      const fbs::BufferInfo *buffer = program.buffers()->Get(b);
      if (buffer->space() != memory.stepSpace)
        continue;
      uint8_t *front = memory.step + buffer->offset();
      uint8_t *back = front + buffer->size() - zone;
      if (isBefore && buffer->first() == at) {
        std::memset(front, pattern, zone);
        std::memset(back, pattern, zone);
      }
      if (isBefore || at < buffer->first() || at > buffer->last())
        continue;
      zones += 2;
      std::string where = "of '" + std::string(viewOf(buffer->name())) + "' after " +
                          what() + std::to_string(at) + " of " + program.name()->str();
      check(front, zone, "the zone before the bytes " + where);
      check(back, zone, "the zone behind the bytes " + where);
    }
    if (isBefore)
      return;
    for (auto [begin, size] : stateGaps) {
      check(memory.state + begin, size,
            "the state's zone at " + std::to_string(begin) + " after " + what() +
                std::to_string(at) + " of " + program.name()->str());
      ++stateZones;
    }
  }

  int64_t zones = 0, stateZones = 0; // looked at
  std::vector<std::string> damage;

private:
  const char *what() const {
    return memory.stepSpace == fbs::Space::step ? "launch " : "copy ";
  }

  void check(const uint8_t *bytes, uint64_t size, const std::string &where) {
    for (uint64_t i = 0; i < size; ++i)
      if (bytes[i] != pattern) {
        damage.push_back(where + " has changed at its byte " + std::to_string(i));
        return;
      }
  }

  const Plan &plan;
  int64_t zone;
  WatchedMemory memory;
  std::vector<std::pair<uint64_t, uint64_t>> stateGaps; // offset, bytes
};

} // namespace sluice
