#include "runtime/Trace.h"

#include <algorithm>
#include <ctime>

namespace sluice {

uint64_t nowNs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u +
         static_cast<uint64_t>(now.tv_nsec);
}

std::vector<TraceEvent> TraceRing::events(int worker) const {
  const Ring &ring = rings[static_cast<size_t>(worker)];
  std::vector<TraceEvent> sorted;
  for (uint64_t i = ring.count - std::min<uint64_t>(ring.count, capacity); i < ring.count;
       ++i)
    sorted.push_back(ring.events[i % capacity]);
  return sorted;
}

} // namespace sluice
