#include "passes/planning/CollectiveReplay.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sluice {

CollectiveTimes replay(const CollectiveTimeline &timeline, int64_t ranks,
                       const LinkTopology &links) {
  std::vector<CollectiveCost> ways[3];
  for (CollectiveKind kind : {CollectiveKind::AllReduce, CollectiveKind::ReduceScatter,
                              CollectiveKind::AllGather})
    ways[size_t(kind)] = collectiveWays(kind, ranks, links);
  CollectiveTimes times;
  double now = 0, linkFree = 0;
  std::vector<double> ends; // of the messages sent
  size_t sent = 0;
  HostDebt debt;
  auto send = [&](int64_t launched) {
    for (; sent < timeline.messages.size(); ++sent) {
      const CollectiveTimeline::Message &message = timeline.messages[sent];
      if (message.launchesBefore > launched)
        break;
      const auto &costs = ways[size_t(message.kind)];
      double us = fastestWay(costs, message.bytes).us(message.bytes);
      linkFree = std::max(now, linkFree) + us;
      times.linkUs += us;
      debt.add(links.host.us(message.bytes));
      ends.push_back(linkFree);
    }
  };
  auto waitUntil = [&](double us) {
    times.waitedUs += std::max(0.0, us - now);
    debt.pass(std::max(0.0, us - now));
    now = std::max(now, us);
  };
  send(0);
  int64_t launched = 0;
  for (const CollectiveTimeline::Launch &launch : timeline.launches) {
    if (size_t needed = std::min(size_t(launch.waits), ends.size()); needed > 0)
      waitUntil(ends[needed - 1]);
    now += launch.us + debt.take();
    send(++launched);
  }
  waitUntil(linkFree);
  times.us = now + debt.take();
  return times;
}

CollectiveTimes replay(const std::vector<CollectiveTimeline> &programs, int64_t ranks,
                       const LinkTopology &links) {
  CollectiveTimes sum;
  for (const CollectiveTimeline &program : programs) {
    CollectiveTimes times = replay(program, ranks, links);
    sum.us += program.runs * times.us;
    sum.waitedUs += program.runs * times.waitedUs;
    sum.linkUs += program.runs * times.linkUs;
  }
  return sum;
}

/// The greatest value in [low, high] for which `holds`, which is true up to some value
/// and false above; to a relative 1e-4.
template <typename Holds> static double greatest(double low, double high, Holds holds) {
  for (int i = 0; i < 200 && high > low * (1 + 1e-4); ++i) {
    double middle = std::sqrt(low * high);
    (holds(middle) ? low : high) = middle;
  }
  return low;
}

EnoughLink enoughLink(const std::vector<CollectiveTimeline> &programs, int64_t ranks,
                      LinkTopology links, double share) {
  EnoughLink found;
  found.between = spansNodes(ranks, links);
  Link &link = found.between ? links.between : links.within;
  const Link present = link;
  auto suffices = [&](double rate, double latencyUs) {
    link = {rate, latencyUs};
    CollectiveTimes times = replay(programs, ranks, links);
    return times.waitedUs <= share * times.us;
  };
  found.link = present;
  found.isThere = suffices(present.bytesPerSecond, present.latencyUs);
  constexpr double slowest = 1e3, fastest = 1e18; // bytes per second
  if (suffices(fastest, present.latencyUs)) {
    double time = greatest(1 / fastest, 1 / slowest, [&](double usPerByte) {
      return suffices(1 / usPerByte, present.latencyUs);
    });
    found.link.bytesPerSecond = 1 / time;
    return found;
  }
  found.needsLatency = true;
  double rate = present.bytesPerSecond;
  if (!suffices(rate, 0)) {
    rate = fastest;
    found.link.bytesPerSecond = std::numeric_limits<double>::infinity();
  }
  found.isNone = !suffices(rate, 0);
  if (found.isNone) {
    found.link.latencyUs = 0;
    return found;
  }
  found.link.latencyUs = greatest(1e-6, std::max(present.latencyUs, 2e-6),
                                  [&](double us) { return suffices(rate, us); });
  return found;
}

} // namespace sluice
