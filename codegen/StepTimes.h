#pragma once
// What an update of a planned module is made of: its programs with their messages, and
// what the time of their launches goes to.

#include "ir/plan/Plan.h"
#include "passes/planning/CollectiveReplay.h"

#include <map>
#include <string>
#include <vector>

namespace sluice {

struct ProgramTimes {
  CollectiveTimeline timeline;
  /// Of the launches of one run: `compute`, `memory`, `overhead`; `optimizer`: of those
  /// that write parameters or moments and compute no product.
  std::map<std::string, double> us;
};

/// Of an update: the programs that run, the training entry first.
std::vector<ProgramTimes> programTimes(mlir::ModuleOp planned);

/// Shares of an update's time: those of ProgramTimes, and `link`: what launches wait for
/// messages.
struct UpdateTimes {
  double us = 0;
  std::map<std::string, double> shares;
  std::string boundBy() const; ///< the largest
};
UpdateTimes updateTimes(const std::vector<ProgramTimes> &programs, int64_t ranks,
                        const LinkTopology &links);

/// The least link with which launches wait for at most a twentieth of an update.
EnoughLink enoughLink(const std::vector<ProgramTimes> &programs, int64_t ranks,
                      const LinkTopology &links);

} // namespace sluice
