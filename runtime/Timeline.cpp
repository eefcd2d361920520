#include "runtime/Timeline.h"

#include <algorithm>

namespace sluice {

namespace {

/// Runs the three queues against each other.
class Simulation {
public:
  explicit Simulation(const fbs::Program &program) : program(program) {}

  std::vector<TimelineEvent> run() {
    uint32_t count = sizeOf(program.launches());
    for (uint32_t i = 0; i < count; ++i) {
      const fbs::Launch &launch = *program.launches()->Get(i);
      double ready = launchesDone.empty() ? 0 : launchesDone.back();
      ready = std::max(ready, doneCopies(launch.wait_copies()));
      ready = std::max(ready, doneCollectives(launch.wait_collectives()));
      launchesDone.push_back(ready + launch.predicted_us());
      launches.push_back({Queue::launches, i, ready, launchesDone.back()});
    }
    doneCopies(sizeOf(program.copies()));
    doneCollectives(sizeOf(program.collectives()));
    launches.insert(launches.end(), copies.begin(), copies.end());
    launches.insert(launches.end(), collectives.begin(), collectives.end());
    return std::move(launches);
  }

private:
  /// A launch that is waited for has run: a plan that says otherwise is not checked here.
  double doneLaunches(uint32_t count) const {
    size_t known = std::min<size_t>(count, launchesDone.size());
    return known == 0 ? 0 : launchesDone[known - 1];
  }

  template <class Table>
  static double advance(const Table *table, Queue queue, uint32_t count,
                        std::vector<TimelineEvent> &events,
                        const Simulation &simulation) {
    for (auto i = static_cast<uint32_t>(events.size());
         i < std::min(count, sizeOf(table)); ++i) {
      double ready = std::max(events.empty() ? 0 : events.back().endUs,
                              simulation.doneLaunches(table->Get(i)->wait_launches()));
      events.push_back({queue, i, ready, ready + table->Get(i)->predicted_us()});
    }
    size_t known = std::min<size_t>(count, events.size());
    return known == 0 ? 0 : events[known - 1].endUs;
  }
  double doneCopies(uint32_t count) {
    return advance(program.copies(), Queue::copies, count, copies, *this);
  }
  double doneCollectives(uint32_t count) {
    return advance(program.collectives(), Queue::collectives, count, collectives, *this);
  }

  const fbs::Program &program;
  std::vector<double> launchesDone;
  std::vector<TimelineEvent> launches, copies, collectives;
};

/// Sorted and joined where they touch.
std::vector<Interval> joined(std::vector<Interval> parts) {
  std::sort(parts.begin(), parts.end());
  std::vector<Interval> result;
  for (auto [begin, end] : parts)
    if (!result.empty() && begin <= result.back().second)
      result.back().second = std::max(result.back().second, end);
    else
      result.push_back({begin, end});
  return result;
}

} // namespace

std::vector<TimelineEvent> plannedTimeline(const fbs::Program &program) {
  return Simulation(program).run();
}

double overlapShare(std::vector<Interval> inner, std::vector<Interval> outer) {
  inner = joined(std::move(inner)), outer = joined(std::move(outer));
  double total = 0, both = 0;
  size_t at = 0;
  for (auto [begin, end] : inner) {
    total += end - begin;
    while (at < outer.size() && outer[at].second <= begin)
      ++at;
    for (size_t i = at; i < outer.size() && outer[i].first < end; ++i)
      both += std::min(end, outer[i].second) - std::max(begin, outer[i].first);
  }
  return total > 0 ? both / total : 0;
}

} // namespace sluice
