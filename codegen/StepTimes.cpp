#include "codegen/StepTimes.h"

#include "passes/Collectives.h"
#include "passes/LaunchCosts.h"
#include "passes/PlanLaunches.h"
#include "passes/UpdateGroups.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace sluice {
namespace {

/// What launches may wait for messages without the link counting as too slow.
constexpr double allowedWait = 0.05;

/// How often an update runs a program.
double runsOf(plan::ProgramOp program, bool hasStep) {
  auto module = program->getParentOfType<ModuleOp>();
  auto number = [&](StringRef name) -> int64_t {
    auto attr = module->getAttrOfType<IntegerAttr>(name);
    return attr ? attr.getInt() : 1;
  };
  StringRef entry = program.getEntry();
  if (isUpdateEntry(entry))
    return hasStep ? 0 : updateRuns(module, entry);
  return double(entry == "step"         ? 1
                : entry == "micro"      ? number("graph.accumulate")
                : entry == "close_rank" ? number("graph.as_ranks") - 1
                                        : 0);
}

/// Of the tensors that all ranks have parts in.
int64_t bytesOf(plan::CollectiveOp collective) {
  int64_t in = 0, out = 0;
  for (Value value : collective.getIns())
    in += plan::rangeOf(value).size;
  for (Value value : collective.getOuts())
    out += plan::rangeOf(value).size;
  return std::max(in, out);
}

bool updatesState(plan::LaunchOp launch, SymbolTable &symbols) {
  return llvm::any_of(accessesOf(launch), [&](const LaunchAccess &access) {
    auto buffer = dyn_cast<plan::StateBufferOp>(access.range.root);
    if (!buffer || !access.written)
      return false;
    auto state = symbols.lookup<plan::StateOp>(buffer.getSymbol());
    return state && (state.getRole() == "moment" || state.getTrainable());
  });
}

std::string causeOf(plan::LaunchOp launch, const DeviceRates &rates,
                    SymbolTable &symbols) {
  LaunchCost cost = launchCost(launch, rates);
  if (cost.product.flops == 0 && updatesState(launch, symbols))
    return "optimizer";
  switch (predictLaunch(cost, rates).boundBy) {
  case BoundBy::Matrix:
  case BoundBy::Vector:
    return "compute";
  case BoundBy::Memory:
    return "memory";
  default:
    return "overhead";
  }
}

ProgramTimes timesOf(plan::ProgramOp program, const DeviceRates &rates,
                     SymbolTable &symbols) {
  ProgramTimes times;
  SmallVector<QueuedCollective> collectives = collectivesOf(program);
  for (QueuedCollective &collective : collectives)
    times.timeline.messages.push_back({bytesOf(collective.op), collective.waitLaunches,
                                       collectiveKindOf(collective.op.getKind())});
  size_t waits = 0;
  for (auto [index, launch] : llvm::enumerate(launchesOf(program))) {
    while (waits < collectives.size() && collectives[waits].doneBy <= int64_t(index))
      ++waits;
    double us = launch.getPredictedUs().convertToDouble();
    times.timeline.launches.push_back({us, int64_t(waits)});
    times.us[causeOf(launch, rates, symbols)] += us;
  }
  return times;
}

std::vector<CollectiveTimeline> timelinesOf(const std::vector<ProgramTimes> &programs) {
  std::vector<CollectiveTimeline> timelines;
  for (const ProgramTimes &program : programs)
    timelines.push_back(program.timeline);
  return timelines;
}

} // namespace

std::vector<ProgramTimes> programTimes(ModuleOp planned) {
  DeviceRates rates = deviceRates(planned);
  SymbolTable symbols(planned);
  auto programs = llvm::to_vector(planned.getOps<plan::ProgramOp>());
  bool hasStep = llvm::any_of(
      programs, [](plan::ProgramOp program) { return program.getEntry() == "step"; });
  std::vector<ProgramTimes> list;
  for (plan::ProgramOp program : programs) {
    double runs = runsOf(program, hasStep);
    if (runs <= 0)
      continue;
    ProgramTimes times = timesOf(program, rates, symbols);
    times.timeline.runs = runs;
    StringRef entry = program.getEntry();
    bool trains = entry == "step" || entry == "micro";
    list.insert(trains ? list.begin() : list.end(), std::move(times));
  }
  return list;
}

std::string UpdateTimes::boundBy() const {
  auto most =
      std::max_element(shares.begin(), shares.end(),
                       [](const auto &a, const auto &b) { return a.second < b.second; });
  return most == shares.end() ? "nothing" : most->first;
}

UpdateTimes updateTimes(const std::vector<ProgramTimes> &programs, int64_t ranks,
                        const LinkTopology &links) {
  UpdateTimes times;
  for (const ProgramTimes &program : programs)
    for (const auto &[cause, us] : program.us)
      times.shares[cause] += program.timeline.runs * us;
  CollectiveTimes played = replay(timelinesOf(programs), ranks, links);
  if (played.waitedUs > 0)
    times.shares["link"] = played.waitedUs;
  times.us = played.us;
  for (auto &[cause, us] : times.shares)
    us /= std::max(times.us, 1e-9);
  return times;
}

EnoughLink enoughLink(const std::vector<ProgramTimes> &programs, int64_t ranks,
                      const LinkTopology &links) {
  return enoughLink(timelinesOf(programs), ranks, links, allowedWait);
}

} // namespace sluice
