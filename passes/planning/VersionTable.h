#pragma once
// Which version of its weights a group's forward and backward part read at every step,
// and which gradients its updates apply, where groups interleave or are deferred; and a
// checker that follows what a plan's programs really do, without knowing the rule.
//
// A version is counted in updates of the group. Steps repeat after a while, up to a
// shift, so the table has so many rows that all of the start and a whole turn is there.

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

struct GroupTiming {
  std::string name;
  int64_t every = 1, phase = 0; // interleave: updated at steps t with t mod every = phase
  int64_t delay = 0;            // defer: by the gradient of step t - delay
};

struct VersionRow {
  int64_t step = 0;
  int32_t group = 0;
  int64_t read = 0;                              // version that the step computes with
  int64_t firstGradient = -1, lastGradient = -1; // steps whose mean it applies; -1: none
  int64_t version = 0;                           // behind the step
};

struct VersionTable {
  std::vector<GroupTiming> groups;
  int64_t every = 1, steps = 0;
  std::vector<VersionRow> rows; // by step, then by group

  const VersionRow &at(int64_t step, int32_t group) const {
    return rows[static_cast<size_t>(step) * groups.size() + static_cast<size_t>(group)];
  }
};

/// The groups that interleave share one `every`.
VersionTable versionTable(std::vector<GroupTiming> groups);

/// What a value of state or of the step is, for the checker.
struct VersionResource {
  enum Kind {
    Scratch, // what the samples of steps, or sums of theirs, are computed into
    Samples, // what the step is fed with
    Weights, // of a group
    Other,   // state that carries no gradient: moments, statistics, controls
  };
  Kind kind = Scratch;
  int32_t group = -1;
  std::string name;
};

/// A launch or message. Those of one queue run in order; `begin` and `end` are places in
/// the order of launches: a launch at place i has i and i + 1, a message may run at any
/// time from `begin` to `end`.
struct VersionEvent {
  int64_t begin = 0, end = 0;
  std::vector<int32_t> reads, writes; // resources
  bool isMessage = false;
};

struct VersionProgram {
  std::string name;
  std::vector<VersionEvent> events; // in an order that respects begin and end
};

struct VersionProblem {
  std::vector<VersionResource> resources;
  /// What step t runs, at [t mod every], one after the other.
  std::vector<std::vector<VersionProgram>> steps;
  int64_t maxAge = 0; // updates that weights may have had since a gradient was computed
};

/// Empty where every read and update is as the table says, no gradient is older than
/// `maxAge`, and nothing is written while it is read; else the first that is not.
std::string checkVersions(const VersionTable &table, const VersionProblem &problem);

} // namespace sluice
