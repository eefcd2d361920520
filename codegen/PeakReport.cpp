#include "codegen/PeakReport.h"

#include "ir/plan/Plan.h"
#include "passes/PlanLaunches.h"

#include <algorithm>
#include <tuple>

using namespace mlir;

namespace sluice {
namespace {

plan::ProgramOp largestProgram(ModuleOp module) {
  plan::ProgramOp largest;
  for (auto program : module.getOps<plan::ProgramOp>())
    if (!largest || program.getStepBytes() > largest.getStepBytes())
      largest = program;
  return largest;
}

/// First and last launch at which a buffer lives, as instants of the program.
std::pair<int64_t, int64_t> rangeOf(plan::BufferOp buffer) {
  auto first = buffer.getFirst(), last = buffer.getLast();
  return {first ? int64_t(*first) : 0, last ? int64_t(*last) : 0};
}

/// The first instant at which most bytes are live.
int64_t peakInstant(plan::ProgramOp program) {
  std::vector<std::pair<int64_t, int64_t>> changes;
  for (auto buffer : program.getBody().front().getOps<plan::BufferOp>()) {
    auto [first, last] = rangeOf(buffer);
    changes.push_back({first, int64_t(buffer.getSize())});
    changes.push_back({last + 1, -int64_t(buffer.getSize())});
  }
  std::sort(changes.begin(), changes.end());
  int64_t live = 0, most = -1, at = 0;
  for (size_t i = 0; i < changes.size(); ++i) {
    live += changes[i].second;
    bool isLast = i + 1 == changes.size() || changes[i + 1].first != changes[i].first;
    if (isLast && live > most)
      most = live, at = changes[i].first;
  }
  return at;
}

bool writesState(plan::LaunchOp launch) {
  return llvm::any_of(accessesOf(launch), [](const LaunchAccess &access) {
    return access.written && isa<plan::StateBufferOp>(access.range.root);
  });
}

std::string phaseOf(plan::ProgramOp program, const Peak &peak, int64_t instant) {
  if (program.getEntry() != "step" && program.getEntry() != "micro")
    return program.getEntry().str();
  SmallVector<plan::LaunchOp> launches = launchesOf(program);
  int64_t gradients = 0;
  for (const PeakBuffer &buffer : peak.live)
    gradients += buffer.category == "gradients" ? buffer.bytes : 0;
  bool inside = instant >= 0 && instant < int64_t(launches.size());
  if (2 * gradients > peak.bytes || (inside && writesState(launches[instant])))
    return "update";
  // The first gradient of a parameter comes after the loss.
  for (auto buffer : program.getBody().front().getOps<plan::BufferOp>())
    if (buffer.getCategory() == "gradients" && rangeOf(buffer).first <= instant)
      return "backward";
  return "forward";
}

} // namespace

Peak peakOf(ModuleOp module) {
  Peak peak;
  plan::ProgramOp program = largestProgram(module);
  if (!program)
    return peak;
  peak.entry = program.getEntry().str();
  int64_t instant = peakInstant(program);
  for (auto buffer : program.getBody().front().getOps<plan::BufferOp>()) {
    auto [first, last] = rangeOf(buffer);
    if (first > instant || last < instant)
      continue;
    peak.live.push_back(
        {buffer.getLabel().str(), buffer.getCategory().str(), int64_t(buffer.getSize())});
    peak.bytes += int64_t(buffer.getSize());
  }
  std::sort(peak.live.begin(), peak.live.end(),
            [](const PeakBuffer &a, const PeakBuffer &b) {
              return std::tie(b.bytes, a.name) < std::tie(a.bytes, b.name);
            });
  SmallVector<plan::LaunchOp> launches = launchesOf(program);
  if (instant >= 0 && instant < int64_t(launches.size())) {
    peak.launch = launches[instant].getLabel().str();
    peak.node = launches[instant].getNode().str();
  }
  peak.phase = phaseOf(program, peak, instant);
  return peak;
}

std::string Peak::text() const {
  constexpr size_t shown = 4;
  std::string line = phase;
  if (!launch.empty())
    line += ", while '" + launch + "' of '" + node + "' runs";
  for (size_t i = 0; i < std::min(shown, live.size()); ++i)
    line += std::string(i == 0 ? ": '" : ", '") + live[i].name + "' (" +
            live[i].category + ", " + std::to_string(live[i].bytes) + ")";
  if (live.size() > shown)
    line += " and " + std::to_string(live.size() - shown) + " more";
  return line;
}

} // namespace sluice
