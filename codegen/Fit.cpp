#include "codegen/Fit.h"

#include "codegen/CompileReport.h"
#include "codegen/PeakReport.h"
#include "codegen/RunStage.h"
#include "passes/LaunchCosts.h"
#include "passes/MeasureStep.h"
#include "passes/Pipeline.h"
#include "passes/PlanLaunches.h"
#include "passes/StepProblem.h"
#include "passes/planning/Frontier.h"
#include "passes/planning/RecomputeFloor.h"

#include "mlir/IR/OwningOpRef.h"

#include <cmath>
#include <thread>

using namespace mlir;

namespace sluice {
namespace {

bool isTraining(StringRef entry) { return entry == "step" || entry == "micro"; }

class FitPlanner {
public:
  FitPlanner(ModuleOp module, const FitOptions &options, MemoryCurve &curve)
      : module(module), options(options), spec(options.compile.spec), curve(curve) {
    if (spec.threads <= 0)
      spec.threads = std::max(1u, std::thread::hardware_concurrency());
  }

  Status run() {
    setDevice(module, options.compile.device);
    bool fuse = options.compile.fuse;
    Status status = stage(module, [&](OpPassManager &passes) {
      buildTrainPipeline(passes, spec);
      buildRegionPipeline(passes, fuse);
      if (spec.hasFixedRecompute())
        buildDecidePipeline(passes, spec);
    });
    if (!status.ok())
      return status;
    OwningOpRef<ModuleOp> plain = module.clone();
    if (status = plan(*plain); !status.ok())
      return status;
    describe(*plain);
    add(arenaBytes(trainBytes), onceUs);
    if (!trainingEntry(module) || spec.hasFixedRecompute() || spec.recompute == "none")
      return Status::success();
    return planMembers();
  }

private:
  template <typename Build> Status stage(ModuleOp target, Build build) {
    return runStage(target, build);
  }
  Status plan(ModuleOp target) {
    return stage(target, [&](OpPassManager &passes) {
      buildPlanPipeline(passes, options.compile.fuse);
    });
  }

  int64_t arenaBytes(int64_t train) const {
    return curve.stateBytes + std::max(train, otherBytes);
  }

  /// Sizes and times of the plan that runs nothing again.
  void describe(ModuleOp planned) {
    CompileReport report;
    describePlan(planned, report);
    curve.stateBytes = report.stateBytes;
    curve.arena = report.arena;
    curve.peak = peakOf(planned).text();
    onceUs = report.stepUs;
    DeviceRates rates = deviceRates(planned);
    for (auto program : planned.getOps<plan::ProgramOp>()) {
      int64_t bytes = program.getStepBytes();
      if (!isTraining(program.getEntry())) {
        otherBytes = std::max(otherBytes, bytes);
        continue;
      }
      trainBytes = bytes;
      trainUs = program.getPredictedUs().convertToDouble();
      runs = std::max<int64_t>(1, spec.accumulate);
      for (auto input : program.getBody().front().getOps<plan::InputOp>())
        curve.inputBytes += plan::tensorBytes(input.getType());
      for (plan::LaunchOp launch : launchesOf(program)) {
        LaunchTime time = predictLaunch(launchCost(launch, rates), rates);
        curve.boundBy[nameOf(time.boundBy)] += time.us;
        ++curve.launches;
      }
    }
    for (auto &[bound, us] : curve.boundBy)
      us /= std::max(trainUs, 1e-9);
  }

  OwningOpRef<ModuleOp> trainingOnly() {
    OwningOpRef<ModuleOp> clone = module.clone();
    func::FuncOp entry = trainingEntry(*clone);
    for (auto other : llvm::make_early_inc_range(clone->getOps<func::FuncOp>()))
      if (other != entry)
        other.erase();
    return clone;
  }

  /// Some of the frontier's plans, really ordered and placed; always the smallest.
  Status planMembers() {
    OwningOpRef<ModuleOp> scratch = trainingOnly();
    StepProblem step(trainingEntry(*scratch), spec.keep);
    if (std::string wrong = step.keepError(); !wrong.empty())
      return Status::refused(wrong);
    if (failed(measureStep(step, *scratch, options.compile.fuse)))
      return Status::failed("the training step cannot be measured");
    curve.operations = int64_t(step.problem.ops.size());
    Frontier frontier = Frontier::build(step.problem);
    if (!frontier.error().empty())
      return Status::failed("the step has no recompute plans: " + frontier.error());
    std::vector<Member> members = membersOf(frontier, step.problem);
    // The smallest first: it always is a point, as compile finds it.
    for (Member &member : members)
      if (!smallestTrain || member.leastBytes < *smallestTrain)
        if (Status status = planMember(frontier, member); !status.ok())
          return status;
    size_t taken = std::min<size_t>(std::max<int64_t>(options.plans, 0), members.size());
    for (size_t i = 0; i < taken; ++i)
      if (Status status = planMember(frontier, members[i * members.size() / taken]);
          !status.ok())
        return status;
    return Status::success();
  }

  /// A member of the frontier that runs something again.
  struct Member {
    size_t index;
    int64_t leastBytes; // of the training entry, in any order
    bool isPlanned = false;
  };

  /// As many as compile looks at, from the smallest to the largest.
  static std::vector<Member> membersOf(const Frontier &frontier,
                                       const RecomputeProblem &problem) {
    constexpr size_t most = 128;
    std::vector<Member> list;
    size_t count = frontier.members().size(), taken = std::min(most, count);
    for (size_t i = 0; i < taken; ++i) {
      size_t index = taken == 1 ? 0 : i * (count - 1) / (taken - 1);
      RecomputeSolution solution = frontier.plan(index);
      if (solution.schedule.size() > problem.ops.size())
        list.push_back({index, leastBytesInAnyOrder(problem, solution)});
    }
    return list;
  }

  Status planMember(const Frontier &frontier, Member &member) {
    if (std::exchange(member.isPlanned, true))
      return Status::success();
    OwningOpRef<ModuleOp> clone = trainingOnly();
    StepProblem(trainingEntry(*clone), spec.keep).apply(frontier.plan(member.index));
    if (Status status = plan(*clone); !status.ok())
      return status;
    for (auto program : clone->getOps<plan::ProgramOp>()) {
      double us = program.getPredictedUs().convertToDouble();
      // As compile does: where all fits, nothing runs again.
      if (!isTraining(program.getEntry()) || us < trainUs)
        continue;
      int64_t bytes = program.getStepBytes();
      smallestTrain = std::min(smallestTrain.value_or(bytes), bytes);
      add(arenaBytes(bytes), onceUs + double(runs) * (us - trainUs));
    }
    return Status::success();
  }

  /// Keeps `points` free of plans that another beats.
  void add(int64_t bytes, double us) {
    std::vector<MemoryPoint> &points = curve.points;
    for (const MemoryPoint &point : points)
      if (point.arenaBytes <= bytes && point.stepUs <= us)
        return;
    llvm::erase_if(points, [&](const MemoryPoint &point) {
      return bytes <= point.arenaBytes && us <= point.stepUs;
    });
    auto at = llvm::find_if(
        points, [&](const MemoryPoint &point) { return point.arenaBytes > bytes; });
    points.insert(at, {bytes, us});
  }

  ModuleOp module;
  const FitOptions &options;
  TrainingSpec spec;
  MemoryCurve &curve;
  int64_t trainBytes = 0, otherBytes = 0, runs = 1;
  std::optional<int64_t> smallestTrain; // of the plans that run something again
  double trainUs = 0;                   // of one run of the training entry
  double onceUs = 0;                    // of a whole step
};

} // namespace

const MemoryPoint *MemoryCurve::fastestWithin(int64_t bytes) const {
  const MemoryPoint *best = nullptr;
  for (const MemoryPoint &point : points)
    if (point.arenaBytes <= bytes)
      best = &point;
  return best;
}

Status findMemoryCurve(ModuleOp module, const FitOptions &options, MemoryCurve &curve) {
  return FitPlanner(module, options, curve).run();
}

Status findLargest(const SizeSearch &search,
                   llvm::function_ref<Status(int64_t, int64_t &)> bytesOf,
                   LargestSize &largest) {
  constexpr int trials = 12;
  bool startFits = search.startBytes <= search.budgetBytes;
  int64_t low = startFits ? search.start : 0;                // fits
  int64_t high = startFits ? search.most + 1 : search.start; // does not fit
  std::pair<int64_t, int64_t> a{0, search.fixedBytes}, b{search.start, search.startBytes};
  Status refused = Status::success();
  bool any = false, wasNeighbour = false;
  for (int trial = 0; trial < trials && low + 1 < high; ++trial) {
    // Along the line through what is known last, but inside what is open; a neighbour
    // proves a guess that was right.
    double slope = double(b.second - a.second) / double(b.first - a.first);
    // A neighbour that proved nothing: the line is far from the truth.
    double guess = wasNeighbour ? std::sqrt(std::max(1.0, double(low)) * double(high))
                   : slope > 0 && refused.ok()
                       ? double(b.first) + double(search.budgetBytes - b.second) / slope
                       : std::floor((double(low) + double(high)) / 2);
    int64_t size =
        int64_t(std::clamp(std::floor(guess), double(low + 1), double(high - 1)));
    wasNeighbour = size == low + 1 || size == high - 1;
    int64_t bytes = -1;
    Status status = bytesOf(size, bytes);
    largest.tried.push_back({size, status.ok() ? bytes : -1});
    if (!status.ok()) {
      refused = status;
      high = size;
      continue;
    }
    any = true;
    refused = Status::success();
    a = b, b = {size, bytes};
    (bytes <= search.budgetBytes ? low : high) = size;
  }
  if (!any && !refused.ok())
    return refused;
  largest.size = low;
  largest.limit = refused.message;
  largest.isProved = low + 1 == high && high <= search.most;
  return Status::success();
}

} // namespace sluice
