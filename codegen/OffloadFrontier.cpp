#include "codegen/OffloadFrontier.h"

#include "codegen/RunStage.h"
#include "ir/plan/Plan.h"
#include "passes/LiveRanges.h"
#include "passes/MeasureStep.h"
#include "passes/Pipeline.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace sluice {
namespace {

constexpr int64_t lineBytes = 64;
constexpr size_t mostMembers = 6;     // of the recompute frontier
constexpr size_t mostPlacements = 12; // really placed, when looking for the smallest

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
    plainUs = measureOffload(step.problem, keepAll(step.problem)).timeUs;
  }
  OffloadChoice start = startOf(step);
  std::vector<OffloadPlan> plans;
  if (moves)
    plans = offloadPlans(step.problem, start);
  else
    plans.push_back(measureOffload(step.problem, start));
  if (moves && other && isSameStep && other->member == member)
    plans.push_back(measureOffload(step.problem, step.withNames(other->offload)));
  for (const OffloadPlan &plan : plans)
    entries.push_back({member, step.names(plan.choice), plan.deviceBytes, plan.hostBytes,
                       plan.timeUs, step.decisions(plan.choice)});
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
    if (frontier->plan(member).schedule.size() == problem->problem.ops.size())
      continue;
    if (Status status = addEntries(static_cast<int64_t>(member), /*moves=*/true);
        !status.ok())
      return status;
  }
  return Status::success();
}

void OffloadFrontier::prune() {
  // Of plans as fast as each other the one that moves least comes first. Each is there
  // once: ties are the same plan.
  auto key = [](const OffloadEntry &entry) {
    return std::tuple(entry.timeUs, -entry.deviceBytes, entry.member, entry.names.states,
                      entry.names.buffers);
  };
  llvm::sort(entries, [&](const OffloadEntry &a, const OffloadEntry &b) {
    return key(a) < key(b);
  });
  std::vector<OffloadEntry> kept;
  for (OffloadEntry &entry : entries)
    if (kept.empty() || entry.deviceBytes < kept.back().deviceBytes)
      kept.push_back(std::move(entry));
  entries = std::move(kept);
}

Status OffloadFrontier::place(const OffloadEntry &entry, OwningOpRef<ModuleOp> &planned) {
  planned = cloneOf(entry.member);
  return runStage(*planned, [&](OpPassManager &passes) {
    buildPlanPipeline(passes, options.fuse, &entry.names);
  });
}

Status OffloadFrontier::findSmallest(const OffloadEntry *&smallest) {
  smallest = nullptr;
  int64_t least = 0;
  size_t tried = 0;
  for (const OffloadEntry &entry : llvm::reverse(entries)) {
    if ((smallest && entry.deviceBytes >= least) || tried++ == mostPlacements)
      break;
    OwningOpRef<ModuleOp> planned;
    if (Status status = place(entry, planned); !status.ok())
      return status;
    int64_t bytes = deviceBytesOf(*planned);
    if (!smallest || bytes < least)
      smallest = &entry, least = bytes;
  }
  return Status::success();
}

} // namespace sluice
