#include "runtime/Session.h"

#include "runtime/Schedule.h"
#include "runtime/continual/Consolidation.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace sluice {

Result<std::unique_ptr<Session>> Session::create(PlanPtr plan, SessionOptions options) {
  std::unique_ptr<Session> session(new Session);
  session->planPtr = std::move(plan);
  session->options = std::move(options);
  if (Status status = session->setUp(); !status.ok())
    return status;
  return session;
}

Status Session::setUp() {
  int threads = options.threads > 0 ? options.threads : planPtr->threads();
  if (threads > planPtr->threads())
    return Status::usage(std::to_string(threads) + " threads asked for, the plan has " +
                         "workspace for " + std::to_string(planPtr->threads()) +
                         "; compile with --threads " + std::to_string(threads));
  auto level = chooseLevel(*planPtr, options.level);
  if (!level)
    return level.status();
  auto table = bindKernels(*planPtr, *level, options.resolver);
  if (!table)
    return table.status();
  kernels = std::move(*table);
  if (options.variant >= planPtr->rungs())
    return Status::usage("variant " + std::to_string(options.variant) +
                         " is asked for, the plan has " +
                         std::to_string(planPtr->rungs()) + ", counted from 0");
  if (Status status = checkRanks(); !status.ok())
    return status;
  rungIndex = options.variant;
  if (Status status = reserve(); !status.ok())
    return status;
  auto newTeam = ThreadTeam::create(threads);
  if (!newTeam)
    return newTeam.status();
  team = std::move(*newTeam);
  if (planPtr->hasCopies()) {
    bool crowded = threads + 1 > static_cast<int>(std::thread::hardware_concurrency());
    auto queue = CopyQueue::create(crowded);
    if (!queue)
      return queue.status();
    copyQueue = std::move(*queue);
  }
  if (options.traceEvents > 0)
    // A row for each worker, the collectives and the copies.
    ring = std::make_unique<TraceRing>(
        threads + planPtr->hasCollectives() + planPtr->hasCopies(), options.traceEvents);
  seedValue = options.seed.value_or(planPtr->raw().seed());
  loadPrograms();
  findControls();
  Status status = initialState();
  return status.ok() ? joinRanks() : status;
}

Status Session::reserve() {
  PlanMemory memory = planPtr->memory(rungIndex);
  auto state =
      Reservation::make("state", memory.stateBytes, options.state, options.allocator);
  if (!state)
    return state.status();
  stateMemory = std::move(*state);
  auto step =
      Reservation::make("step", memory.stepBytes, options.step, options.allocator);
  if (!step)
    return step.status();
  stepMemory = std::move(*step);
  if (Status status = reserveHost(memory); !status.ok())
    return status;
  fillStep(/*isFresh=*/true);
  return Status::success();
}

Status Session::reserveHost(const PlanMemory &memory) {
  if (memory.hostStateBytes > 0 || options.hostState.data) {
    auto state = Reservation::make("host state", memory.hostStateBytes, options.hostState,
                                   options.allocator);
    if (!state)
      return state.status();
    hostStateMemory = std::move(*state);
  }
  if (memory.hostStepBytes > 0 || options.hostStep.data) {
    auto step = Reservation::make("host step", memory.hostStepBytes, options.hostStep,
                                  options.allocator);
    if (!step)
      return step.status();
    hostStepMemory = std::move(*step);
  }
  return Status::success();
}

/// A fresh reservation holds zeros, which no program has written.
void Session::fillStep(bool isFresh) {
  if (!options.stepPattern)
    return;
  stepTouched = isFresh ? 0 : stepBytesTouched();
  hostStepTouched = isFresh ? 0 : hostStepBytesTouched();
  std::memset(stepMemory.data(), *options.stepPattern, stepBytes());
  if (uint64_t bytes = planPtr->memory(rungIndex).hostStepBytes; bytes > 0)
    std::memset(hostStepMemory.data(), *options.stepPattern, bytes);
}

double Session::rateOf(const GroupControls &group) const {
  double rate =
      group.hasFixedRate ? group.fixedRate : learningRate(*group.group, appliedUpdates());
  return rate * spikes.factor();
}

void Session::writeControls(int64_t firstSample, int64_t valid) {
  auto set = [](int64_t *place, int64_t value) {
    if (place)
      *place = value;
  };
  set(controls.seed, static_cast<int64_t>(seedValue));
  set(controls.update, updatesDone);
  set(controls.sample, firstSample);
  set(controls.valid, valid);
  set(controls.pending, pending);
  set(controls.rank, rank());
  controls.clipMax.write();
  for (const GroupControls &group : controls.groups)
    writeGroupControls(group);
}

Status Session::execute(LoadedProgram &loaded, int64_t valid) {
  if (options.aroundProgram)
    options.aroundProgram(true);
  Status status = loaded.executor->run(
      *team, {copyQueue.get(), commQueue.get(), ring.get(), &options.aroundLaunch,
              &options.aroundCopy, &options.aroundCollective, updatesDone});
  if (options.aroundProgram)
    options.aroundProgram(false);
  if (!status.ok())
    return broken = status;
  lastProgram = &loaded;
  lastValid = valid;
  for (CroppedOutput &output : croppedOutputs)
    output.isUsed = false;
  return status;
}

Status Session::update(LoadedProgram &loaded, StepResult &result) {
  ++updatesDone;
  bool isFinite = !loaded.nonFinite || *loaded.nonFinite < 0;
  result.outlier = loaded.outlier && *loaded.outlier != 0;
  result.skipped = !isFinite || result.outlier;
  for (GroupControls &group : controls.groups)
    countUpdate(group, result.skipped);
  phase.count();
  followChanges(appliedUpdates() - !result.skipped);
  if (controls.step)
    *controls.step = updatesDone;
  pending = 0;
  result.updated = true;
  result.windowLossSum = windowLossSum;
  result.windowLossCount = windowLossCount;
  if (loaded.gradNorm)
    result.gradNorm = *loaded.gradNorm;
  if (!result.skipped)
    result.fluctuation = spikes.add(result.windowLoss());
  windowLossSum = windowLossCount = 0;
  // The state has moved on all the same: the next step would do as this one.
  bool isStuck = !isFinite && controls.scale && !(*controls.scale < *result.lossScale) &&
                 !(*controls.scale > *result.lossScale);
  return isStuck ? scaleStuck(*loaded.nonFinite) : Status::success();
}

Status Session::step(const Batch &batch, StepResult &result) {
  result = {};
  if (Status status = checkMayTrain(); !status.ok())
    return status;
  if (updatesDone == 0 && pending == 0)
    if (Status status = beginPath(*this); !status.ok())
      return status;
  bool accumulates = addsGradients();
  auto loaded = find(accumulates ? microProgram : stepProgram, batch.bucket);
  if (!loaded)
    return loaded.status();
  if (Status status = feed(**loaded, batch, batch.firstSample); !status.ok())
    return status;
  chooseTurns();
  writeControls(batch.firstSample, batch.count);
  if (controls.scale)
    result.lossScale = *controls.scale;
  if (!accumulates)
    keepForRerun();
  if (Status status = execute(**loaded, batch.count); !status.ok())
    return status;
  samplesDone = batch.firstSample + batch.count;
  result.lossSum = *(*loaded)->lossSum;
  result.lossCount = *(*loaded)->lossCount;
  noteLoss(result);
  windowLossSum += result.lossSum;
  windowLossCount += result.lossCount;
  result.windowLossSum = windowLossSum;
  result.windowLossCount = windowLossCount;
  if (accumulates && ++pending < planPtr->accumulate())
    return closeRank();
  if (!accumulates) {
    Status status = closeWindow(1);
    return status.ok() ? explained(update(**loaded, result), batch, result) : status;
  }
  StepResult ofWindow;
  Status status = flush(ofWindow);
  ofWindow.lossSum = result.lossSum;
  ofWindow.lossCount = result.lossCount;
  result = ofWindow;
  return explained(std::move(status), batch, result);
}

/// Behind the last micro-batch of every rank but the last, which needs no room to wait.
Status Session::closeRank() {
  int64_t perRank = planPtr->accumulate() / planPtr->raw().as_ranks();
  if (pending % perRank != 0 || planPtr->raw().as_ranks() == 1)
    return Status::success();
  auto loaded = find(closeRankProgram);
  if (!loaded)
    return loaded.status();
  fillStep();
  writeControls(samplesDone, 0);
  if (controls.rank)
    *controls.rank = pending / perRank - 1;
  return execute(**loaded, 0);
}

Status Session::flush(StepResult &result) {
  result = {};
  if (Status status = checkMayTrain(); !status.ok())
    return status;
  if (pending == 0 && !sharesUpdates())
    return Status::success();
  auto loaded = findUpdate(updatesDone);
  if (!loaded)
    return loaded.status();
  fillStep();
  chooseTurns();
  writeControls(samplesDone, 0);
  if (controls.scale)
    result.lossScale = *controls.scale;
  keepForRerun();
  Status status = execute(**loaded, 0);
  if (status.ok())
    status = closeWindow(pending);
  return status.ok() ? update(**loaded, result) : status;
}

Status Session::eval(const Batch &batch, StepResult &result) {
  return measure(evalProgram, batch, result);
}

Status Session::probe(const Batch &batch, StepResult &result) {
  return measure(probeProgram, batch, result);
}

Status Session::fisher(const Batch &batch, int64_t label, StepResult &result) {
  if (controls.label)
    *controls.label = label;
  return measure(fisherProgram, batch, result);
}

Status Session::measure(ProgramKind kind, const Batch &batch, StepResult &result) {
  result = {};
  auto loaded = find(kind, batch.bucket);
  if (!loaded)
    return loaded.status();
  if (Status status = feed(**loaded, batch, batch.firstSample); !status.ok())
    return status;
  writeControls(batch.firstSample, batch.count);
  if (Status status = execute(**loaded, batch.count); !status.ok())
    return status;
  result.lossSum = *(*loaded)->lossSum;
  result.lossCount = *(*loaded)->lossCount;
  return Status::success();
}

Status Session::infer(const Batch &batch) {
  auto loaded = find(inferProgram, batch.bucket);
  if (!loaded)
    return loaded.status();
  if (Status status = feed(**loaded, batch, batch.firstSample); !status.ok())
    return status;
  writeControls(batch.firstSample, batch.count);
  if (Status status = execute(**loaded, batch.count); !status.ok())
    return status;
  cropOutputs(**loaded, batch);
  return Status::success();
}

Result<double> Session::rate(std::string_view name) const {
  for (const GroupControls &group : controls.groups)
    if (name.empty() || viewOf(group.group->name()) == name)
      return rateOf(group);
  return unknownGroup(name);
}

Status Session::setRate(std::string_view name, double rate) {
  for (GroupControls &group : controls.groups) {
    if (viewOf(group.group->name()) != name)
      continue;
    if (std::isinf(rate))
      return Status::usage("the rate of group '" + std::string(name) + "' is not finite");
    group.hasFixedRate = !std::isnan(rate);
    group.fixedRate = rate;
    return Status::success();
  }
  return unknownGroup(name);
}

void Session::resumeAt(int64_t updates, int64_t samples, uint64_t seed) {
  updatesDone = updates;
  samplesDone = windowFirst = samples;
  seedValue = seed;
  pending = 0;
  windowLossSum = windowLossCount = 0;
  // A window that was under way is given up.
  for (const fbs::StateTensor *tensor : *planPtr->raw().state())
    if (tensor->role() == fbs::Role::accumulator && tensor->size() > 0)
      std::memset(tensorData(*tensor), 0, tensor->size());
  if (controls.step)
    *controls.step = updates;
  followChanges(appliedUpdates());
}

static uint64_t bytesTouched(const uint8_t *data, uint64_t end, uint8_t pattern) {
  while (end > 0 && data[end - 1] == pattern)
    --end;
  return end;
}

uint64_t Session::stepBytesTouched() const {
  return std::max(stepTouched, bytesTouched(stepMemory.data(), stepBytes(),
                                            options.stepPattern.value_or(0)));
}

uint64_t Session::hostStepBytesTouched() const {
  return std::max(hostStepTouched, bytesTouched(hostStepMemory.data(),
                                                planPtr->memory(rungIndex).hostStepBytes,
                                                options.stepPattern.value_or(0)));
}

} // namespace sluice
