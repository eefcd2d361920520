#pragma once
// When each launch ran on each worker, and its picture for Perfetto or chrome://tracing.

#include "runtime/Plan.h"

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

struct TraceEvent {
  uint32_t program = 0, launch = 0; // indices in the plan
  uint64_t beginNs = 0, endNs = 0;  // monotonic clock
};

/// The last `capacity` events of every worker. Allocates once.
class TraceRing {
public:
  TraceRing(int workers, size_t capacity)
      : rings(static_cast<size_t>(workers)), capacity(capacity) {
    for (Ring &ring : rings)
      ring.events.resize(capacity);
  }

  /// Only by worker `worker` itself.
  void record(int worker, const TraceEvent &event) {
    Ring &ring = rings[static_cast<size_t>(worker)];
    ring.events[ring.count++ % capacity] = event;
  }

  int workers() const { return static_cast<int>(rings.size()); }
  /// Oldest first; not while a program runs.
  std::vector<TraceEvent> events(int worker) const;

private:
  struct alignas(64) Ring {
    std::vector<TraceEvent> events;
    uint64_t count = 0;
  };
  std::vector<Ring> rings;
  size_t capacity;
};

uint64_t nowNs();

/// Trace Event Format: one process of what was measured, a row per worker and queue,
/// named by what the launch computes, with the model's nodes; one of what was planned for
/// the same programs; and what share of copies and collectives lies beside launches.
std::string traceJson(const TraceRing &ring, const Plan &plan);
/// The same of a program that has not run.
std::string plannedTraceJson(const Plan &plan, uint32_t program);
Status writeTrace(const TraceRing &ring, const Plan &plan, const std::string &path);

} // namespace sluice
