#include "codegen/Fit.h"

#include "codegen/CompileReport.h"
#include "codegen/OffloadFrontier.h"
#include "codegen/PeakReport.h"
#include "codegen/PolicySearch.h"
#include "codegen/RunStage.h"
#include "codegen/Variants.h"
#include "passes/LaunchCosts.h"
#include "passes/LiveRanges.h"
#include "passes/MeasureStep.h"
#include "passes/Pipeline.h"
#include "passes/PlanLaunches.h"
#include "passes/planning/RecomputeFloor.h"

#include <thread>

using namespace mlir;

namespace sluice {
namespace {

bool isTraining(StringRef entry) { return entry == "step" || entry == "micro"; }

/// What a planned module needs, and what its training entry waits for.
struct PlannedStep {
  MemoryPoint point;
  CompileReport report;
  int64_t trainBytes = 0, otherBytes = 0; // step reservations
  double trainUs = 0;                     // of one run of the training entry
  int64_t inputBytes = 0, launches = 0;
};

PlannedStep measure(ModuleOp planned) {
  PlannedStep step;
  describePlan(planned, step.report);
  MemoryPoint &point = step.point;
  point.arenaBytes = step.report.arenaBytes;
  point.stepUs = step.report.stepUs;
  point.hostBytes = step.report.hostStateBytes + step.report.hostStepBytes;
  DeviceRates rates = deviceRates(planned);
  point.programs = programTimes(planned);
  for (auto program : planned.getOps<plan::ProgramOp>()) {
    int64_t bytes = program.getStepBytes();
    if (!isTraining(program.getEntry())) {
      step.otherBytes = std::max(step.otherBytes, bytes);
      continue;
    }
    step.trainBytes = bytes;
    step.trainUs = program.getPredictedUs().convertToDouble();
    for (auto input : program.getBody().front().getOps<plan::InputOp>())
      step.inputBytes += plan::tensorBytes(input.getType());
    double launchUs = 0;
    for (plan::LaunchOp launch : launchesOf(program)) {
      BoundBy bound = predictLaunch(launchCost(launch, rates), rates).boundBy;
      double us = launch.getPredictedUs().convertToDouble();
      point.boundBy[nameOf(bound)] += us;
      launchUs += us;
      ++step.launches;
    }
    if (step.trainUs > launchUs * (1 + 1e-9))
      point.boundBy[nameOf(BoundBy::Link)] += step.trainUs - launchUs;
    for (auto &[bound, us] : point.boundBy)
      us /= std::max({step.trainUs, launchUs, 1e-9});
    program.walk([&](plan::CopyOp copy) {
      point.linkBusy +=
          copy.getPredictedUs().convertToDouble() / std::max(step.trainUs, 1e-9);
    });
  }
  return step;
}

/// Plans of one shape.
class FitPlanner {
public:
  FitPlanner(const CompileBucket &bucket, const FitOptions &options, MemoryCurve &curve)
      : module(bucket.module), options(options), spec(options.compile.spec),
        curve(curve) {
    curve.name = bucket.name;
    if (spec.threads <= 0)
      spec.threads = std::max(1u, std::thread::hardware_concurrency());
  }

  /// The plan that keeps everything, for the state of all shapes.
  Status start(PlannedVariant &variant) {
    if (Status status = preparePolicy(spec); !status.ok())
      return status;
    setDevice(module, options.compile.device);
    bool fuse = options.compile.fuse;
    Status status = runStage(module, [&](OpPassManager &passes) {
      buildTrainPipeline(passes, spec);
      buildRegionPipeline(passes, fuse);
      if (spec.hasFixedRecompute())
        buildDecidePipeline(passes, spec);
    });
    if (!status.ok())
      return status;
    plain = module.clone();
    if (status = plan(*plain); !status.ok())
      return status;
    describe();
    variant.bucketName = curve.name;
    variant.module = *plain;
    return Status::success();
  }

  /// `others`: bytes that the other shapes add to the state.
  Status finish(int64_t others) {
    otherStateBytes = others;
    curve.stateBytes += others;
    if (others > 0)
      curve.arena["parameters"] += others;
    if (spec.offload != "none")
      return planOffload();
    add(once.point);
    if (!trainingEntry(module) || spec.hasFixedRecompute() || spec.recompute == "none")
      return Status::success();
    return planMembers();
  }

private:
  /// `stepBytes`: that the step reservation may have, as far as it matters.
  Status plan(ModuleOp target, std::optional<int64_t> stepBytes = std::nullopt) {
    if (stepBytes)
      target->setAttr(stepBudgetAttr, Builder(target).getI64IntegerAttr(*stepBytes));
    return runStage(target, [&](OpPassManager &passes) {
      buildPlanPipeline(passes, options.compile.fuse);
    });
  }

  void describe() {
    once = measure(*plain);
    curve.stateBytes = once.report.stateBytes;
    curve.arena = once.report.arena;
    curve.state = once.report.state;
    curve.peak = peakOf(*plain).text();
    curve.inputBytes = once.inputBytes;
    curve.launches = once.launches;
  }

  /// Some of the plans that run again and move, the smallest and the fastest with them.
  Status planOffload() {
    CompileOptions compile = options.compile;
    compile.spec = spec;
    // Fixed policies have been applied.
    if (spec.hasFixedRecompute())
      compile.spec.recompute = "none";
    OffloadFrontier plans(module, compile);
    if (Status status = plans.start(/*moves=*/true); !status.ok())
      return status;
    if (trainingEntry(module) && compile.spec.recompute != "none")
      if (Status status = plans.addRecompute(); !status.ok())
        return status;
    std::optional<OffloadEntry> smallest;
    if (Status status = plans.findSmallest(smallest); !status.ok())
      return status;
    if (Status status = plans.expandSome(options.plans); !status.ok())
      return status;
    plans.prune();
    std::vector<const OffloadEntry *> chosen = {&*smallest, &plans.entries.front()};
    size_t count = plans.entries.size();
    size_t taken = std::min<size_t>(std::max<int64_t>(options.plans, 0), count);
    for (size_t i = 0; i < taken; ++i)
      if (const OffloadEntry *entry = &plans.entries[i * count / taken];
          !llvm::is_contained(chosen, entry))
        chosen.push_back(entry);
    for (const OffloadEntry *entry : chosen) {
      OwningOpRef<ModuleOp> planned;
      if (Status status = plans.place(*entry, std::nullopt, planned); !status.ok())
        return status;
      add(measure(*planned).point);
    }
    return Status::success();
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
    if (options.within)
      return askWhetherAnyFits(frontier, members);
    // The smallest first: it always is a point, as compile finds it.
    for (Member &member : members) {
      if (smallestTrain && member.leastBytes >= *smallestTrain)
        continue;
      bool mayBe = true;
      if (smallestTrain)
        if (Status status = fits(frontier, member, *smallestTrain - 1, mayBe);
            !status.ok())
          return status;
      if (mayBe)
        if (Status status = planMember(frontier, member); !status.ok())
          return status;
    }
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

  Status planMember(const Frontier &frontier, const Member &member,
                    std::optional<int64_t> stepBytes, PlannedStep &step) {
    OwningOpRef<ModuleOp> clone = trainingOnly();
    StepProblem(trainingEntry(*clone), spec.keep).apply(frontier.plan(member.index));
    Status status = plan(*clone, stepBytes);
    if (status.ok())
      step = measure(*clone);
    return status;
  }

  /// Whether the step reservation of the training entry takes at most so many bytes.
  /// `least` becomes smaller with it, packed or not.
  Status fits(const Frontier &frontier, const Member &member, int64_t trainBytes,
              bool &isSo, int64_t *least = nullptr) {
    PlannedStep step;
    Status status = planMember(frontier, member, trainBytes, step);
    bool counts = step.trainUs >= once.trainUs;
    isSo = step.trainBytes <= trainBytes && counts;
    if (least && counts)
      *least = std::min(*least, step.trainBytes);
    return status;
  }

  /// Plans no more than it takes to know; `within` counts the state of all shapes.
  Status askWhetherAnyFits(const Frontier &frontier, std::vector<Member> &members) {
    llvm::sort(members, [](const Member &a, const Member &b) {
      return std::pair(a.leastBytes, a.index) < std::pair(b.leastBytes, b.index);
    });
    int64_t fixed = once.report.stateBytes + otherStateBytes;
    int64_t room = *options.within - fixed;
    bool any = curve.points.front().arenaBytes <= *options.within;
    int64_t least = once.trainBytes;
    for (const Member &member : members) {
      if (any || member.leastBytes > room || once.otherBytes > room)
        break;
      if (Status status = fits(frontier, member, room, any, &least); !status.ok())
        return status;
    }
    bool isPlanned = least < once.trainBytes;
    if (!isPlanned && !members.empty())
      least = std::min(least, members.front().leastBytes);
    least = fixed + std::max(least, once.otherBytes);
    curve.points.assign(1, curve.points.front());
    curve.points.front().arenaBytes =
        any ? std::min(least, *options.within) : std::max(least, *options.within + 1);
    return Status::success();
  }

  Status planMember(const Frontier &frontier, Member &member) {
    if (std::exchange(member.isPlanned, true))
      return Status::success();
    PlannedStep step;
    if (Status status = planMember(frontier, member, std::nullopt, step); !status.ok())
      return status;
    // As compile does: where all fits, nothing runs again.
    if (step.trainUs < once.trainUs)
      return Status::success();
    smallestTrain = std::min(smallestTrain.value_or(step.trainBytes), step.trainBytes);
    // The other entries are those of the plan that runs nothing again.
    int64_t runs = std::max<int64_t>(1, spec.accumulate);
    step.point.arenaBytes =
        once.report.stateBytes + std::max(step.trainBytes, once.otherBytes);
    step.point.stepUs = once.point.stepUs + double(runs) * (step.trainUs - once.trainUs);
    const std::vector<ProgramTimes> &programs = once.point.programs;
    if (!programs.empty())
      step.point.programs.insert(step.point.programs.end(), programs.begin() + 1,
                                 programs.end());
    add(step.point);
    return Status::success();
  }

  /// Keeps `points` free of plans that another beats.
  void add(MemoryPoint added) {
    added.arenaBytes += otherStateBytes;
    std::vector<MemoryPoint> &points = curve.points;
    for (const MemoryPoint &point : points)
      if (point.arenaBytes <= added.arenaBytes && point.stepUs <= added.stepUs)
        return;
    llvm::erase_if(points, [&](const MemoryPoint &point) {
      return added.arenaBytes <= point.arenaBytes && added.stepUs <= point.stepUs;
    });
    auto at = llvm::find_if(points, [&](const MemoryPoint &point) {
      return point.arenaBytes > added.arenaBytes;
    });
    points.insert(at, added);
  }

  ModuleOp module;
  const FitOptions &options;
  TrainingSpec spec;
  MemoryCurve &curve;
  OwningOpRef<ModuleOp> plain;
  PlannedStep once; // runs nothing again
  int64_t otherStateBytes = 0;
  std::optional<int64_t> smallestTrain; // of the plans that run something again
};

} // namespace

const MemoryPoint *MemoryCurve::fastestWithin(int64_t bytes) const {
  const MemoryPoint *best = nullptr;
  for (const MemoryPoint &point : points)
    if (point.arenaBytes <= bytes)
      best = &point;
  return best;
}

Status findMemoryCurves(ArrayRef<CompileBucket> buckets, const FitOptions &options,
                        std::vector<MemoryCurve> &curves) {
  if (Status status = checkSameState(buckets); !status.ok())
    return status;
  curves.assign(buckets.size(), {});
  std::vector<std::unique_ptr<FitPlanner>> planners;
  std::vector<PlannedVariant> plain(buckets.size());
  for (size_t i = 0; i < buckets.size(); ++i) {
    planners.push_back(std::make_unique<FitPlanner>(buckets[i], options, curves[i]));
    if (Status status = planners.back()->start(plain[i]); !status.ok())
      return status;
  }
  if (Status status = mergeVariants(plain); !status.ok())
    return status;
  int64_t stateBytes = stateBytesOf(plain);
  for (size_t i = 0; i < buckets.size(); ++i)
    if (!options.only || *options.only == i)
      if (Status status = planners[i]->finish(stateBytes - curves[i].stateBytes);
          !status.ok())
        return status;
  return Status::success();
}

} // namespace sluice
