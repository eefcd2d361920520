#pragma once
// When the launches, copies and collectives of a program are predicted to run, and what
// share of one queue's time lies beside another's.

#include "runtime/Plan.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace sluice {

enum class Queue { launches, copies, collectives };

struct TimelineEvent {
  Queue queue = Queue::launches;
  uint32_t index = 0;
  double beginUs = 0, endUs = 0;
};

/// Each queue runs in order; an event begins when what it waits for in the others is
/// done. By queue, then in order.
std::vector<TimelineEvent> plannedTimeline(const fbs::Program &program);

using Interval = std::pair<double, double>; // begin, end

/// The share of the time of `inner` during which `outer` runs too; 0 without any.
double overlapShare(std::vector<Interval> inner, std::vector<Interval> outer);

} // namespace sluice
