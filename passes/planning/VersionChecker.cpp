// Follows the steps' samples through the programs: a value carries the steps whose
// samples it was computed from, so what an update applies is seen, not assumed.

#include "passes/planning/VersionTable.h"

#include <algorithm>
#include <set>

namespace sluice {

namespace {

using Steps = std::set<int64_t>;

class VersionChecker {
public:
  VersionChecker(const VersionTable &table, const VersionProblem &problem)
      : table(table), problem(problem), carried(problem.resources.size()),
        version(problem.resources.size(), 0), readAt(problem.resources.size()) {}

  std::string run() {
    for (const auto &step : problem.steps)
      for (const VersionProgram &program : step)
        if (std::string race = findRace(program); !race.empty())
          return race;
    for (int64_t step = 0; step < table.steps; ++step) {
      now = step;
      applied.assign(problem.resources.size(), Steps());
      for (const VersionProgram &program :
           problem.steps[static_cast<size_t>(step % table.every)])
        for (const VersionEvent &event : program.events)
          if (std::string wrong = follow(program, event); !wrong.empty())
            return wrong;
      if (std::string wrong = endStep(); !wrong.empty())
        return wrong;
    }
    return "";
  }

private:
  const VersionResource &resource(int32_t index) const {
    return problem.resources[static_cast<size_t>(index)];
  }

  static bool meet(const std::vector<int32_t> &a, const std::vector<int32_t> &b,
                   int32_t &which) {
    for (int32_t index : a)
      if (std::find(b.begin(), b.end(), index) != b.end()) {
        which = index;
        return true;
      }
    return false;
  }

  /// Two events may run at the same time, and one of them writes what the other touches.
  std::string findRace(const VersionProgram &program) const {
    for (size_t i = 0; i < program.events.size(); ++i)
      for (size_t j = i + 1; j < program.events.size(); ++j) {
        const VersionEvent &a = program.events[i], &b = program.events[j];
        if (a.isMessage == b.isMessage || a.end <= b.begin || b.end <= a.begin)
          continue;
        int32_t which = 0;
        if (meet(a.writes, b.reads, which) || meet(a.writes, b.writes, which) ||
            meet(a.reads, b.writes, which))
          return "program '" + program.name + "': '" + resource(which).name +
                 "' is written while it may be used, at launch " +
                 std::to_string(std::max(a.begin, b.begin));
      }
    return "";
  }

  std::string follow(const VersionProgram &program, const VersionEvent &event) {
    Steps steps;
    for (int32_t index : event.reads) {
      size_t at = static_cast<size_t>(index);
      if (resource(index).kind == VersionResource::Samples)
        steps.insert(now);
      else if (resource(index).kind == VersionResource::Scratch)
        steps.insert(carried[at].begin(), carried[at].end());
    }
    for (int32_t index : event.reads) {
      bool isUpdate = std::find(event.writes.begin(), event.writes.end(), index) !=
                      event.writes.end();
      if (resource(index).kind != VersionResource::Weights || isUpdate)
        continue;
      if (std::string wrong = checkRead(program, index); !wrong.empty())
        return wrong;
    }
    for (int32_t index : event.writes) {
      size_t at = static_cast<size_t>(index);
      if (resource(index).kind == VersionResource::Weights)
        applied[at].insert(steps.begin(), steps.end());
      else if (resource(index).kind == VersionResource::Scratch)
        carried[at] = steps;
    }
    return "";
  }

  std::string checkRead(const VersionProgram &program, int32_t index) {
    size_t at = static_cast<size_t>(index);
    readAt[at].resize(static_cast<size_t>(table.steps), -1);
    int64_t seen = version[at] + (applied[at].empty() ? 0 : 1);
    readAt[at][static_cast<size_t>(now)] = seen;
    int64_t wanted = table.at(now, resource(index).group).read;
    if (seen == wanted || program.name.starts_with("update"))
      return "";
    return "step " + std::to_string(now) + ", program '" + program.name + "': '" +
           resource(index).name + "' is read in version " + std::to_string(seen) +
           ", expected " + std::to_string(wanted);
  }

  std::string endStep() {
    for (size_t at = 0; at < problem.resources.size(); ++at) {
      const VersionResource &of = problem.resources[at];
      if (of.kind != VersionResource::Weights)
        continue;
      const VersionRow &row = table.at(now, of.group);
      // Before the first gradient has come out, an update changes nothing.
      if (!applied[at].empty())
        ++version[at];
      Steps wanted;
      for (int64_t s = row.firstGradient; s >= 0 && s <= row.lastGradient; ++s)
        wanted.insert(s);
      if (applied[at] != wanted)
        return "step " + std::to_string(now) + ": '" + of.name +
               "' is updated by gradients of steps " + textOf(applied[at]) +
               ", expected " + textOf(wanted);
      for (int64_t s : applied[at])
        if (std::string old = checkAge(at, s); !old.empty())
          return old;
      if (version[at] != row.version)
        return "step " + std::to_string(now) + ": '" + of.name + "' is version " +
               std::to_string(version[at]) + " behind it, expected " +
               std::to_string(row.version);
    }
    return "";
  }

  std::string checkAge(size_t at, int64_t gradient) const {
    if (readAt[at].empty() || readAt[at][static_cast<size_t>(gradient)] < 0)
      return ""; // a bias: its gradient does not depend on it
    int64_t age = version[at] - 1 - readAt[at][static_cast<size_t>(gradient)];
    if (age <= problem.maxAge)
      return "";
    return "step " + std::to_string(now) + ": '" + problem.resources[at].name +
           "' has had " + std::to_string(age) + " updates since the gradient of step " +
           std::to_string(gradient) + " was computed, expected at most " +
           std::to_string(problem.maxAge);
  }

  static std::string textOf(const Steps &steps) {
    std::string text;
    for (int64_t step : steps)
      text += (text.empty() ? "" : ", ") + std::to_string(step);
    return steps.empty() ? "none" : text;
  }

  const VersionTable &table;
  const VersionProblem &problem;
  std::vector<Steps> carried, applied;      // by resource
  std::vector<int64_t> version;             // of weights
  std::vector<std::vector<int64_t>> readAt; // of weights: the version each step has read
  int64_t now = 0;
};

} // namespace

std::string checkVersions(const VersionTable &table, const VersionProblem &problem) {
  if (problem.steps.size() != static_cast<size_t>(table.every))
    return "there are programs for " + std::to_string(problem.steps.size()) +
           " steps of a turn, expected " + std::to_string(table.every);
  return VersionChecker(table, problem).run();
}

} // namespace sluice
