#include "passes/planning/PlacementChecker.h"

#include <algorithm>
#include <map>

namespace sluice {
namespace {

struct Event {
  int64_t time;
  bool begins; // ends come first: they are exclusive
  size_t buffer;
};

std::string name(size_t buffer) { return "buffer " + std::to_string(buffer); }

int64_t padded(const PlacementProblem::Buffer &buffer) {
  int64_t rest = buffer.sizeBytes % buffer.alignBytes;
  return rest ? buffer.sizeBytes + buffer.alignBytes - rest : buffer.sizeBytes;
}

std::string checkOffset(const PlacementProblem::Buffer &buffer, size_t index,
                        int64_t offset) {
  if (offset < 0)
    return name(index) + " has the negative offset " + std::to_string(offset);
  if (offset % buffer.alignBytes)
    return name(index) + " lies at " + std::to_string(offset) +
           ", not a multiple of its alignment " + std::to_string(buffer.alignBytes);
  if (buffer.fixedOffset && *buffer.fixedOffset != offset)
    return name(index) + " lies at " + std::to_string(offset) + ", expected the fixed " +
           std::to_string(*buffer.fixedOffset);
  return {};
}

} // namespace

std::string checkPlacement(const PlacementProblem &problem,
                           const PlacementSolution &solution) {
  if (!solution.error.empty())
    return "no solution: " + solution.error;
  if (solution.offsets.size() != problem.buffers.size())
    return "the solution has " + std::to_string(solution.offsets.size()) +
           " offsets, expected " + std::to_string(problem.buffers.size());

  std::vector<Event> events;
  int64_t peak = 0, fixedTop = 0;
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    const auto &buffer = problem.buffers[i];
    std::string wrong = checkOffset(buffer, i, solution.offsets[i]);
    if (!wrong.empty())
      return wrong;
    if (buffer.sizeBytes == 0 || buffer.begin >= buffer.end)
      continue;
    events.push_back({buffer.begin, true, i});
    events.push_back({buffer.end, false, i});
    peak = std::max(peak, solution.offsets[i] + padded(buffer));
    if (buffer.fixedOffset)
      fixedTop = std::max(fixedTop, *buffer.fixedOffset + padded(buffer));
  }
  std::sort(events.begin(), events.end(), [](const Event &a, const Event &b) {
    return a.time != b.time ? a.time < b.time : a.begins < b.begins;
  });

  // What is live, by offset: as live ranges of bytes are disjoint, a newcomer can only
  // hit its neighbors.
  std::map<int64_t, size_t> live;
  int64_t load = 0, maxLoad = 0;
  for (const Event &event : events) {
    const auto &buffer = problem.buffers[event.buffer];
    int64_t offset = solution.offsets[event.buffer];
    if (!event.begins) {
      live.erase(offset);
      load -= padded(buffer);
      continue;
    }
    auto next = live.lower_bound(offset);
    size_t hit = SIZE_MAX;
    if (next != live.end() && next->first < offset + padded(buffer))
      hit = next->second;
    else if (next != live.begin()) {
      size_t below = std::prev(next)->second;
      if (solution.offsets[below] + padded(problem.buffers[below]) > offset)
        hit = below;
    }
    if (hit != SIZE_MAX)
      return name(hit) + " and " + name(event.buffer) + " overlap at time " +
             std::to_string(event.time) + " and byte " +
             std::to_string(std::max(offset, solution.offsets[hit]));
    live[offset] = event.buffer;
    load += padded(buffer);
    maxLoad = std::max(maxLoad, load);
  }

  if (solution.peakBytes != peak)
    return "the peak is stated as " + std::to_string(solution.peakBytes) + ", found " +
           std::to_string(peak);
  int64_t bound = std::max(maxLoad, fixedTop);
  if (solution.lowerBoundBytes != bound)
    return "the lower bound is stated as " + std::to_string(solution.lowerBoundBytes) +
           ", found " + std::to_string(bound);
  bool fits = !problem.capacityBytes || peak <= *problem.capacityBytes;
  if (solution.fits != fits)
    return std::string("the solution says that it ") +
           (solution.fits ? "fits" : "does not fit") + ", but its peak is " +
           std::to_string(peak);
  return {};
}

} // namespace sluice
