#include "codegen/OffloadFrontier.h"

#include "codegen/RunStage.h"
#include "ir/plan/Plan.h"
#include "passes/LiveRanges.h"
#include "passes/MeasureStep.h"
#include "passes/Pipeline.h"
#include "passes/planning/RecomputeFloor.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace sluice {
namespace {

constexpr int64_t lineBytes = 64;
constexpr size_t mostMembers = 128; // of the recompute frontier
constexpr size_t mostMoving = 12;   // of them, that also move tensors

/// `count` of `all` that are spread evenly, both ends with them.
bool isTaken(size_t index, size_t count, size_t all) {
  if (count >= all)
    return true;
  for (size_t i = 0; i < count; ++i)
    if (index == i * (all - 1) / (count - 1))
      return true;
  return false;
}

Status order(ModuleOp clone, bool chain) {
  Status status =
      runStage(clone, [&](OpPassManager &passes) { buildOrderPipeline(passes, chain); });
  for (auto program : clone.getOps<plan::ProgramOp>())
    mergeInPlace(program);
  return status;
}

} // namespace

int64_t deviceBytesOf(ModuleOp module) {
  int64_t state = 0, step = 0;
  for (auto tensor : module.getOps<plan::StateOp>())
    if (!tensor.isOnHost())
      state += llvm::alignTo(tensor.getSize(), lineBytes);
  for (auto program : module.getOps<plan::ProgramOp>())
    step = std::max<int64_t>(step, program.getStepBytes());
  return state + step;
}

/// Each entry is there once: ties are the same plan.
bool OffloadEntry::operator<(const OffloadEntry &other) const {
  if (timeUs != other.timeUs)
    return timeUs < other.timeUs;
  return std::tie(other.deviceBytes, member, names.states, names.buffers) <
         std::tie(deviceBytes, other.member, other.names.states, other.names.buffers);
}

Status OffloadFrontier::start(bool moves) {
  const TrainingSpec &spec = options.spec;
  if (spec.hasFixedRecompute()) {
    Status status = runStage(
        module, [&](OpPassManager &passes) { buildDecidePipeline(passes, spec); });
    if (!status.ok())
      return status;
  }
  if (Status status = measurePlain(); !status.ok())
    return status;
  return addEntries(-1, moves);
}

Status OffloadFrontier::measurePlain() {
  OwningOpRef<ModuleOp> clone = module.clone();
  Status status = runStage(
      *clone, [&](OpPassManager &passes) { buildPlanPipeline(passes, options.fuse); });
  unconstrainedBytes = deviceBytesOf(*clone);
  for (auto program : clone->getOps<plan::ProgramOp>())
    if (program.getEntry() == "step" || program.getEntry() == "micro")
      unconstrainedUs = program.getPredictedUs().convertToDouble();
  return status;
}

OwningOpRef<ModuleOp> OffloadFrontier::cloneOf(int64_t member) {
  OwningOpRef<ModuleOp> clone = module.clone();
  if (member >= 0)
    StepProblem(trainingEntry(*clone), options.spec.keep).apply(frontier->plan(member));
  return clone;
}

OffloadChoice OffloadFrontier::startOf(OffloadStep &step) const {
  bool host = options.spec.offload == "host";
  if (!other)
    return host ? step.withStates({"moment", "master"}) : keepAll(step.problem);
  for (OffloadProblem::State &state : step.problem.states)
    state.movable = false;
  return step.withNames({other->offload.states, {}});
}

Status OffloadFrontier::addEntries(int64_t member, bool moves) {
  OwningOpRef<ModuleOp> clone = cloneOf(member);
  if (Status status = order(*clone, options.fuse); !status.ok())
    return status;
  OffloadStep step(*clone);
  if (member < 0) {
    rememberLink(step);
    rememberTimes(step, *clone);
    plainUs = measureOffload(step.problem, keepAll(step.problem)).timeUs;
  }
  OffloadChoice start = startOf(step);
  auto stateBytesOf = [&](const OffloadChoice &choice) {
    int64_t bytes = 0;
    for (auto [state, level] : llvm::zip_equal(step.problem.states, choice.states))
      bytes += level ? 0 : llvm::alignTo(state.sizeBytes, lineBytes);
    return bytes;
  };
  if (member < 0)
    startStateBytes = stateBytesOf(start);
  std::vector<OffloadPlan> plans;
  if (moves)
    plans = offloadPlans(step.problem, start);
  else
    plans.push_back(measureOffload(step.problem, start));
  if (moves && other && isSameStep && other->member == member)
    plans.push_back(measureOffload(step.problem, step.withNames(other->offload)));
  for (const OffloadPlan &plan : plans)
    // More memory is never predicted slower: where all fits, nothing runs again.
    if (member < 0 || plan.timeUs >= plainUs)
      entries.push_back({member, step.names(plan.choice), plan.deviceBytes,
                         stateBytesOf(plan.choice), plan.hostBytes, plan.timeUs,
                         step.decisions(plan.choice)});
  return Status::success();
}

void OffloadFrontier::rememberLink(const OffloadStep &step) {
  func::FuncOp entry = trainingEntry(module);
  StringRef name = entry ? entry.getSymName() : "step";
  link = step.link;
  readOnlyBytes = step.readOnlyStateBytes(name);
  residentStateBytes = step.stateBytes() - step.untouchedStateBytes(name);
  for (const OffloadProblem::Program &program : step.problem.programs)
    for (const StreamProblem::Tensor &tensor : program.stream.tensors)
      movableBytes += llvm::alignTo(tensor.sizeBytes, lineBytes);
}

void OffloadFrontier::rememberTimes(const OffloadStep &step, ModuleOp ordered) {
  auto programs = ordered.getOps<plan::ProgramOp>();
  for (auto [program, timed] : llvm::zip_equal(programs, step.problem.programs)) {
    if (program.getEntry() != "step" && program.getEntry() != "micro")
      continue;
    stepRuns = double(timed.runs);
    for (double us : timed.stream.launchUs)
      stepUs += us;
  }
}

Status OffloadFrontier::addRecompute() {
  scratch = module.clone();
  func::FuncOp entry = trainingEntry(*scratch);
  for (auto unused : llvm::make_early_inc_range(scratch->getOps<func::FuncOp>()))
    if (unused != entry)
      unused.erase();
  problem = std::make_unique<StepProblem>(entry, options.spec.keep);
  if (std::string wrong = problem->keepError(); !wrong.empty())
    return Status::refused(wrong);
  if (failed(measureStep(*problem, *scratch, options.fuse)))
    return Status::failed("the training step cannot be measured");
  frontier.emplace(Frontier::build(problem->problem));
  if (!frontier->error().empty())
    return Status::failed("the step has no recompute plans: " + frontier->error());
  size_t count = frontier->members().size(), taken = std::min(mostMembers, count);
  for (size_t i = 0; i < taken; ++i) {
    size_t member = taken == 1 ? 0 : i * (count - 1) / (taken - 1);
    RecomputeSolution solution = frontier->plan(member);
    if (solution.schedule.size() > problem->problem.ops.size())
      candidates.push_back({static_cast<int64_t>(member), isTaken(i, mostMoving, taken),
                            stepUs + std::max(0.0, solution.timeUs - solution.onceUs),
                            leastBytesInAnyOrder(problem->problem, solution)});
  }
  return Status::success();
}

Status OffloadFrontier::expand(const OffloadCandidate &candidate) {
  int64_t member = candidate.member;
  bool moves = candidate.moves;
  llvm::erase_if(candidates, [&](auto &other) { return other.member == member; });
  return addEntries(member, moves);
}

Status OffloadFrontier::expandSome(int64_t count) {
  std::vector<OffloadCandidate> open;
  for (const OffloadCandidate &candidate : candidates) {
    int64_t bytes = leastDeviceBytes(candidate);
    double us = leastUs(candidate, bytes);
    bool isBeaten = llvm::any_of(entries, [&](const OffloadEntry &entry) {
      return entry.deviceBytes <= bytes && entry.timeUs <= us;
    });
    if (!candidate.moves && !isBeaten)
      open.push_back(candidate);
  }
  size_t taken = std::min<size_t>(std::max<int64_t>(count, 0), open.size());
  for (size_t i = 0; i < taken; ++i)
    if (Status status = expand(open[i * open.size() / taken]); !status.ok())
      return status;
  return Status::success();
}

void OffloadFrontier::prune() {
  llvm::sort(entries);
  std::deque<OffloadEntry> kept;
  for (OffloadEntry &entry : entries)
    if (kept.empty() || entry.deviceBytes < kept.back().deviceBytes)
      kept.push_back(std::move(entry));
  entries = std::move(kept);
}

Status OffloadFrontier::place(const OffloadEntry &entry,
                              std::optional<int64_t> deviceBytes,
                              OwningOpRef<ModuleOp> &planned) {
  planned = cloneOf(entry.member);
  if (deviceBytes)
    (*planned)->setAttr(stepBudgetAttr, Builder(*planned).getI64IntegerAttr(
                                            *deviceBytes - entry.stateBytes));
  return runStage(*planned, [&](OpPassManager &passes) {
    buildPlanPipeline(passes, options.fuse, &entry.names);
  });
}

} // namespace sluice
