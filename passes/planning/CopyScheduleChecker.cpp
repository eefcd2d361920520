#include "passes/planning/CopyScheduleChecker.h"

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

using Part = StreamSchedule::Part;
using Copy = StreamSchedule::Copy;

/// Runs both queues one event at a time, as a machine would.
class Machine {
public:
  Machine(const StreamProblem &problem, const StreamSchedule &schedule)
      : problem(problem), schedule(schedule), launches(int32_t(problem.launchUs.size())),
        copies(int32_t(schedule.copies.size())) {}

  std::string run() {
    launchEnd.assign(launches, 0);
    copyEnd.assign(copies, 0);
    launchBegin = launchEnd;
    copyBegin = copyEnd;
    int32_t l = 0, c = 0;
    double launchFree = 0, copyFree = 0;
    while (l < launches || c < copies) {
      if (l < launches && schedule.waitCopies[l] <= c) {
        int32_t wait = schedule.waitCopies[l];
        launchBegin[l] = std::max(launchFree, wait > 0 ? copyEnd[wait - 1] : 0.0);
        launchFree = launchEnd[l] = launchBegin[l] + problem.launchUs[l];
        ++l;
      } else if (c < copies && schedule.copies[c].waitLaunches <= l) {
        int32_t wait = schedule.copies[c].waitLaunches;
        copyBegin[c] = std::max(copyFree, wait > 0 ? launchEnd[wait - 1] : 0.0);
        copyFree = copyEnd[c] = copyBegin[c] + schedule.copies[c].us;
        ++c;
      } else {
        return "launch " + std::to_string(l) + " and copy " + std::to_string(c) +
               " wait for each other";
      }
    }
    timeUs = std::max(launchFree, copyFree);
    return {};
  }

  /// Whatever the times: the launch ends before the copy begins.
  bool launchFirst(int32_t launch, int32_t copy) const {
    int32_t done = 0;
    for (int32_t c = 0; c <= copy; ++c)
      done = std::max(done, schedule.copies[c].waitLaunches);
    return launch < done;
  }
  bool copyFirst(int32_t copy, int32_t launch) const {
    int32_t done = 0;
    for (int32_t l = 0; l <= launch; ++l)
      done = std::max(done, schedule.waitCopies[l]);
    return copy < done;
  }

  const StreamProblem &problem;
  const StreamSchedule &schedule;
  int32_t launches, copies;
  std::vector<double> launchBegin, launchEnd, copyBegin, copyEnd;
  double timeUs = 0;
};

std::string name(const Part &part) {
  return "tensor " + std::to_string(part.tensor) + " in launches " +
         std::to_string(part.first) + " to " + std::to_string(part.last);
}

std::string checkShape(const StreamProblem &problem, const StreamSchedule &schedule) {
  if (schedule.waitCopies.size() != problem.launchUs.size())
    return "there is not one wait for each launch";
  for (int32_t wait : schedule.waitCopies)
    if (wait < 0 || wait > int32_t(schedule.copies.size()))
      return "a launch waits for a copy that does not exist";
  for (size_t c = 0; c < schedule.copies.size(); ++c) {
    const Copy &copy = schedule.copies[c];
    if (copy.part < 0 || copy.part >= int32_t(schedule.parts.size()) ||
        copy.waitLaunches < 0 || copy.waitLaunches > int32_t(problem.launchUs.size()))
      return "copy " + std::to_string(c) + " is out of range";
    const Part &part = schedule.parts[copy.part];
    if ((copy.toHost ? part.copyOut : part.copyIn) != int32_t(c))
      return "copy " + std::to_string(c) + " is not the one its part names";
    double us = problem.link.copyUs(problem.tensors[part.tensor].sizeBytes);
    if (std::abs(us - copy.us) > 1e-9 * us)
      return "copy " + std::to_string(c) + " has the wrong time";
  }
  return {};
}

/// Launches of a part begin when its bytes have come, and its bytes leave behind them.
std::string checkPart(const Machine &machine, const Part &part) {
  if (part.copyIn >= 0 && !machine.copyFirst(part.copyIn, part.first))
    return name(part) + " is used before its copy has come";
  if (part.copyOut >= 0 && !machine.launchFirst(part.last, part.copyOut))
    return name(part) + " leaves while launches use it";
  for (int32_t l = 0; l < machine.launches; ++l) {
    bool inside = part.begin <= l && l <= part.end;
    bool overlaps = l >= part.first && l <= part.last;
    for (int32_t c : {part.copyIn, part.copyOut})
      overlaps |= c >= 0 && !machine.launchFirst(l, c) && !machine.copyFirst(c, l);
    if (overlaps && !inside)
      return name(part) + " takes no bytes during launch " + std::to_string(l);
  }
  return {};
}

/// All uses lie in parts, and each part finds the value of the one before.
std::string checkTensor(const StreamProblem &problem, const StreamSchedule &schedule,
                        int32_t index) {
  const StreamProblem::Tensor &tensor = problem.tensors[index];
  std::vector<const Part *> parts;
  for (const Part &part : schedule.parts)
    if (part.tensor == index)
      parts.push_back(&part);
  if (!tensor.offloaded)
    return parts.empty() ? "" : "tensor " + std::to_string(index) + " has parts";
  int32_t inHost = tensor.isState ? 0 : -1; // copies after which the host's value is good
  size_t access = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    const Part &part = *parts[p];
    bool dirty = false;
    for (; access < tensor.accesses.size() && tensor.accesses[access].launch <= part.last;
         ++access) {
      if (tensor.accesses[access].launch < part.first)
        return name(part) + " leaves out a use";
      dirty |= tensor.accesses[access].written;
    }
    bool isFirst = p == 0, isLast = p + 1 == parts.size();
    if (part.copyIn < 0 && (!isFirst || tensor.isState))
      return name(part) + " has no value";
    if (part.copyIn >= 0 && (inHost < 0 || part.copyIn < inHost))
      return name(part) + " is brought before the host has it";
    dirty |= isFirst && !tensor.isState;
    if (dirty && part.copyOut < 0 && (!isLast || tensor.isState))
      return name(part) + " loses what was written";
    if (part.copyOut >= 0)
      inHost = part.copyOut + 1;
  }
  return access == tensor.accesses.size()
             ? ""
             : "tensor " + std::to_string(index) + " has uses outside of its parts";
}

} // namespace

std::string checkCopySchedule(const StreamProblem &problem,
                              const StreamSchedule &schedule) {
  if (std::string wrong = checkShape(problem, schedule); !wrong.empty())
    return wrong;
  Machine machine(problem, schedule);
  if (std::string wrong = machine.run(); !wrong.empty())
    return wrong;
  if (std::abs(machine.timeUs - schedule.timeUs) > 1e-6 * (1 + machine.timeUs))
    return "the time is " + std::to_string(machine.timeUs) + " us, stated are " +
           std::to_string(schedule.timeUs);
  for (const Part &part : schedule.parts)
    if (std::string wrong = checkPart(machine, part); !wrong.empty())
      return wrong;
  for (int32_t t = 0; t < int32_t(problem.tensors.size()); ++t)
    if (std::string wrong = checkTensor(problem, schedule, t); !wrong.empty())
      return wrong;
  return {};
}

} // namespace sluice
