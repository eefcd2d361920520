#pragma once
// What a plan proves about each of its programs: bytes and time beside their bounds, and
// what is live at the instant that needs most.

#include "runtime/Plan.h"
#include "tools/sluice/Cli.h"

namespace sluice::cli {

/// The instant (launch index) at which most bytes of the step reservation are live, and
/// the buffers that are, largest first.
struct PeakInstant {
  int64_t launch = 0;
  uint64_t bytes = 0;
  std::vector<const fbs::BufferInfo *> live;
};
PeakInstant peakInstant(const fbs::Program &program);

/// The launches [first, last] in which a buffer is live: inputs are there before the
/// first, outputs after the last.
std::pair<int64_t, int64_t> launchesOf(const fbs::BufferInfo &buffer,
                                       const fbs::Program &program);

/// Of a variant; 0: none.
uint64_t budgetOf(const Plan &plan, const PlanVariant &variant);

/// Is `part` one of joined names: of nodes by "+", of values that share bytes by ", ".
bool hasName(std::string_view names, std::string_view part);

/// Its name; of a workspace also the nodes of the launch it is for.
std::string bufferText(const fbs::BufferInfo &buffer, const fbs::Program &program);

/// Of the launch at the index: its number, the nodes, what it computes.
std::string launchText(const fbs::Program &program, int64_t launch);
/// The model's nodes, or the tensors an update is for; at most four by name.
std::string nodeText(const fbs::Launch &launch);

/// One object per program of a variant.
Json certificates(const Plan &plan, const PlanVariant &variant);
/// The same as lines of text.
std::vector<std::string> certificateLines(const Plan &plan, const PlanVariant &variant);

} // namespace sluice::cli
