#include "passes/planning/CopySchedule.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace sluice {
namespace {

constexpr int rounds = 4; // of moving copies that came late to an earlier instant

class Scheduler {
public:
  explicit Scheduler(const StreamProblem &problem) : problem(problem) {
    begins.assign(1, 0);
    for (double us : problem.launchUs)
      begins.push_back(begins.back() + us);
  }

  StreamSchedule run() {
    for (int32_t t = 0; t < int32_t(problem.tensors.size()); ++t)
      if (problem.tensors[t].offloaded && !problem.tensors[t].accesses.empty())
        split(t);
    leadUs.assign(schedule.parts.size(), 0);
    StreamSchedule best;
    for (int round = 0; round < rounds; ++round) {
      placeCopies();
      bool late = simulate();
      if (round == 0 || schedule.timeUs < best.timeUs)
        best = schedule;
      if (!late)
        break;
    }
    schedule = best;
    simulate();
    release();
    return schedule;
  }

private:
  int32_t launches() const { return int32_t(problem.launchUs.size()); }
  double copyUs(int32_t part) const {
    return problem.link.copyUs(problem.tensors[schedule.parts[part].tensor].sizeBytes);
  }

  /// Cuts the accesses of a tensor into parts.
  void split(int32_t index) {
    const StreamProblem::Tensor &tensor = problem.tensors[index];
    const auto &list = tensor.accesses;
    double once = problem.link.copyUs(tensor.sizeBytes);
    auto gapUs = [&](size_t i) {
      return begins[list[i + 1].launch] - begins[list[i].launch + 1];
    };
    size_t longest = 0;
    for (size_t i = 0; i + 1 < list.size(); ++i)
      if (gapUs(i) > gapUs(longest))
        longest = i;
    bool onHost = tensor.isState, dirty = false; // the value in the host's memory is good
    StreamSchedule::Part part{index, list[0].launch, list[0].launch};
    if (tensor.isState)
      part.copyIn = 0;
    for (size_t i = 0; i < list.size(); ++i) {
      part.last = list[i].launch;
      dirty |= list[i].written || !onHost;
      bool isLast = i + 1 == list.size();
      if (!isLast) {
        bool apart = list[i + 1].launch > list[i].launch + 1;
        bool hidden = gapUs(i) >= (dirty ? 2 * once : once);
        if (!apart || !(hidden || i == longest || tensor.atOnce))
          continue;
      }
      if (dirty && (!isLast || tensor.isState))
        part.copyOut = 0, onHost = true;
      schedule.parts.push_back(part);
      if (isLast)
        break;
      dirty = false;
      part = {index, list[i + 1].launch, list[i + 1].launch, 0};
    }
  }

  /// The part of the same tensor before this one, or -1.
  int32_t before(int32_t part) const {
    bool same =
        part > 0 && schedule.parts[part - 1].tensor == schedule.parts[part].tensor;
    return same ? part - 1 : -1;
  }

  /// Copies to the device from the last to the first: each ends when the next one begins
  /// or its launch does.
  void placeCopies() {
    schedule.copies.clear();
    std::vector<int32_t> ins;
    for (int32_t p = 0; p < int32_t(schedule.parts.size()); ++p) {
      StreamSchedule::Part &part = schedule.parts[p];
      if (part.copyIn >= 0)
        ins.push_back(p);
      if (part.copyOut >= 0)
        schedule.copies.push_back({p, true, part.last + 1, copyUs(p)});
    }
    std::sort(ins.begin(), ins.end(), [&](int32_t a, int32_t b) {
      return std::pair(schedule.parts[a].first, a) >
             std::pair(schedule.parts[b].first, b);
    });
    double next = begins.back();
    for (int32_t p : ins) {
      const StreamSchedule::Part &part = schedule.parts[p];
      double start = std::min(next, begins[part.first]) - copyUs(p);
      next = start;
      start -= leadUs[p];
      auto later = std::upper_bound(begins.begin() + 1, begins.begin() + part.first + 1,
                                    start); // the first launch to end too late
      int32_t wait = int32_t(later - begins.begin()) - 1;
      if (problem.tensors[part.tensor].atOnce)
        wait = part.first;
      if (int32_t earlier = before(p); earlier >= 0)
        wait = std::max(wait, schedule.parts[earlier].last + 1);
      schedule.copies.push_back({p, false, wait, copyUs(p)});
    }
    auto key = [&](const StreamSchedule::Copy &copy) {
      return std::tuple(copy.waitLaunches, !copy.toHost, schedule.parts[copy.part].first,
                        copy.part);
    };
    std::sort(schedule.copies.begin(), schedule.copies.end(),
              [&](const auto &a, const auto &b) { return key(a) < key(b); });
  }

  /// Fills waits, times and indices of copies. True if a launch had to wait; its copy
  /// then leads by as much more.
  bool simulate() {
    std::vector<int32_t> copyOf(launches(), -1); // last copy a launch waits for
    schedule.linkUs = 0;
    for (int32_t c = 0; c < int32_t(schedule.copies.size()); ++c) {
      const StreamSchedule::Copy &copy = schedule.copies[c];
      StreamSchedule::Part &part = schedule.parts[copy.part];
      (copy.toHost ? part.copyOut : part.copyIn) = c;
      schedule.linkUs += copy.us;
      int32_t launch = copy.toHost ? part.last + 1 : part.first;
      bool waits = !copy.toHost || problem.tensors[part.tensor].atOnce;
      if (waits && launch < launches())
        copyOf[launch] = std::max(copyOf[launch], c);
    }
    schedule.waitCopies.assign(launches(), 0);
    starts.assign(launches(), 0);
    ends.assign(schedule.copies.size(), 0);
    std::vector<double> done(launches() + 1, 0);
    double now = 0, link = 0;
    size_t next = 0;
    bool late = false;
    auto runCopy = [&] {
      const StreamSchedule::Copy &copy = schedule.copies[next];
      link = std::max(link, done[copy.waitLaunches]) + copy.us;
      ends[next++] = link;
    };
    for (int32_t i = 0; i < launches(); ++i) {
      int32_t wait = copyOf[i];
      while (int32_t(next) <= wait)
        runCopy();
      if (wait >= 0) {
        schedule.waitCopies[i] = wait + 1;
        if (ends[wait] > now) {
          for (int32_t c = 0; c <= wait; ++c)
            if (int32_t p = schedule.copies[c].part;
                !schedule.copies[c].toHost && schedule.parts[p].first == i)
              leadUs[p] += ends[wait] - now;
          late = true;
          now = ends[wait];
        }
      }
      starts[i] = now;
      now += problem.launchUs[i];
      done[i + 1] = now;
    }
    while (next < schedule.copies.size())
      runCopy();
    schedule.timeUs = std::max(now, link);
    return late;
  }

  /// A launch that finds a copy to the host done anyway waits for it, which ends the life
  /// of its bytes on the device.
  void release() {
    for (const StreamSchedule::Part &part : schedule.parts) {
      if (part.copyOut < 0)
        continue;
      int32_t launch = part.last + 1;
      while (launch < launches() && starts[launch] < ends[part.copyOut])
        ++launch;
      if (launch < launches())
        schedule.waitCopies[launch] =
            std::max(schedule.waitCopies[launch], part.copyOut + 1);
    }
    int32_t waited = 0;
    std::vector<int32_t> doneBy(schedule.copies.size(), launches() + 1);
    for (int32_t i = 0; i < launches(); ++i) {
      for (; waited < schedule.waitCopies[i]; ++waited)
        doneBy[waited] = i;
      schedule.waitCopies[i] = waited;
    }
    for (StreamSchedule::Part &part : schedule.parts) {
      part.begin = part.first, part.end = part.last;
      for (int32_t c : {part.copyIn, part.copyOut})
        if (c >= 0) {
          int32_t from = schedule.copies[c].waitLaunches, to = doneBy[c] - 1;
          if (from <= to) {
            part.begin = std::min(part.begin, from);
            part.end = std::max(part.end, to);
          }
        }
    }
  }

  const StreamProblem &problem;
  StreamSchedule schedule;
  std::vector<double> begins;       // of launches that never wait
  std::vector<double> starts, ends; // simulated: of launches, of copies
  std::vector<double> leadUs;       // by part: how much earlier than needed
};

} // namespace

StreamSchedule scheduleCopies(const StreamProblem &problem) {
  return Scheduler(problem).run();
}

} // namespace sluice
