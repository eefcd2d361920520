#pragma once
// Watches the red zones of a plan compiled with CompileOptions::redZoneBytes while its
// programs run: those of the device's two reservations.

#include "runtime/Plan.h"

#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace sluice {

class ZoneWatch {
public:
  static constexpr uint8_t pattern = 0xA5; // what the step reservation is filled with too

  /// The state's zones are filled here, once; those of a step buffer when it goes live.
  ZoneWatch(const Plan &plan, int64_t zone, uint8_t *state, uint8_t *step)
      : plan(plan), zone(zone), state(state), step(step) {
    std::set<std::pair<uint64_t, uint64_t>> tensors; // begin, end
    for (const fbs::StateTensor *tensor : *plan.raw().state())
      if (tensor->size() > 0 && tensor->space() == fbs::Space::state)
        tensors.insert({tensor->offset(), tensor->offset() + tensor->size()});
    uint64_t end = 0;
    for (auto [begin, next] : tensors) {
      stateGaps.push_back({end, begin - end});
      end = next;
    }
    for (auto [begin, size] : stateGaps)
      std::memset(state + begin, pattern, size);
  }

  /// As SessionOptions::aroundLaunch.
  void launch(uint32_t programIndex, uint32_t launchIndex, bool isBefore) {
    const fbs::Program &program = *plan.raw().programs()->Get(programIndex);
    auto at = static_cast<int32_t>(launchIndex);
    for (uint32_t b = 0; b < sizeOf(program.buffers()); ++b) {
      const fbs::BufferInfo *buffer = program.buffers()->Get(b);
      if (buffer->space() != fbs::Space::step)
        continue;
      uint8_t *front = step + buffer->offset();
      uint8_t *back = front + buffer->size() - zone;
      if (isBefore && buffer->first() == at) {
        std::memset(front, pattern, zone);
        std::memset(back, pattern, zone);
      }
      if (isBefore || at < buffer->first() || at > buffer->last())
        continue;
      zones += 2;
      std::string where = "of '" + std::string(viewOf(buffer->name())) +
                          "' after launch " + std::to_string(at) + " of " +
                          program.name()->str();
      check(front, zone, "the zone before the bytes " + where);
      check(back, zone, "the zone behind the bytes " + where);
    }
    if (!isBefore)
      for (auto [begin, size] : stateGaps)
        check(state + begin, size,
              "the state's zone at " + std::to_string(begin) + " after launch " +
                  std::to_string(at) + " of " + program.name()->str());
  }

  int64_t zones = 0; // looked at
  std::vector<std::string> damage;

private:
  void check(const uint8_t *bytes, uint64_t size, const std::string &where) {
    for (uint64_t i = 0; i < size; ++i)
      if (bytes[i] != pattern) {
        damage.push_back(where + " has changed at its byte " + std::to_string(i));
        return;
      }
  }

  const Plan &plan;
  int64_t zone;
  uint8_t *state, *step;
  std::vector<std::pair<uint64_t, uint64_t>> stateGaps; // offset, bytes
};

} // namespace sluice
