#include "runtime/Trainer.h"

#include "runtime/SharedFolder.h"

#include "runtime/OutlierRerun.h"
#include "runtime/comm/Agree.h"
#include "runtime/continual/Refresh.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <future>
#include <system_error>

namespace sluice {

/// Fewer samples than the batch of its bucket.
static bool isShort(const Session &session, const Batch &batch) {
  return batch.count < session.batchOf(batch.bucket);
}

Result<EvalReport> evaluate(Session &session, BatchSource &source,
                            const EvalBatchHook &onBatch) {
  EvalReport report;
  report.updates = session.updates();
  double sum = 0, count = 0;
  bool needsFull = session.plan().fullBatches();
  Batch batch;
  if (Status status = source.seek(0); !status.ok())
    return status;
  while (report.samples + report.skipped < source.size()) {
    Status status = source.next(batch);
    StepResult result;
    if (status.ok() && needsFull && isShort(session, batch)) {
      report.skipped += batch.count;
      continue;
    }
    if (status.ok())
      status = session.eval(batch, result);
    if (status.ok() && onBatch)
      status = onBatch(session, batch);
    if (!status.ok())
      return status;
    sum += result.lossSum;
    count += result.lossCount;
    report.samples += batch.count;
  }
  report.loss = count > 0 ? sum / count : 0;
  return report;
}

namespace {

class TrainLoop {
public:
  TrainLoop(Session &session, BatchSource &source, BatchSource *evalSource,
            const TrainOptions &options)
      : session(session), source(source), evalSource(evalSource), options(options) {}

  Status run();
  TrainSummary summary;

private:
  Status checkOptions() const;
  Status resume();
  Status agreeOnRun() const;
  bool isTailSkipped() const;
  int64_t updatesPerEpoch() const;
  int64_t target() const;
  Status runWindow(StepResult &result, double &computeUs);
  Status runShare(StepResult &result, double &computeUs);
  Status nextOf(int64_t position, int64_t count);
  Status withOthers(const std::function<Status()> &work);
  Status tellOthers(bool isDone);
  Status whileOthersHear(const std::function<Status()> &work);
  Status atSyncPoint(bool evaluates, bool saves);
  bool leads() const { return session.rank() == 0; }
  Status explained(Status status, int64_t firstSample, const StepResult &result);
  Status afterUpdate(const StepResult &result, double rate, double computeUs);
  /// All ranks write a checkpoint, not rank 0 alone.
  bool savesTogether() const {
    return options.checkpoint.byAllRanks || session.plan().hasShards();
  }
  Status save();
  Status saveBest();
  Status runEval();
  Status loadBest();
  Result<double> figure(const std::string &metric, const EvalReport &report) const;
  Status judge(const EvalReport &report);
  std::string besideCheckpoints(const char *name) const;
  void finish();

  Session &session;
  BatchSource &source;
  BatchSource *evalSource;
  const TrainOptions &options;
  Batch batch;
  std::vector<double> stepUs;
  double wallSeconds = 0;
  int64_t firstUpdate = 0, firstSample = 0, end = 0;
  bool stopped = false;
  bool stopsNext = false;
  bool others = false;  // rank 0 has said that it goes on working
  bool bestDue = false; // the last evaluation was the best, and is to be saved
  std::optional<BestEvaluation> stopper, keeper; // of earlyStop, of keepBest
};

Status TrainLoop::checkOptions() const {
  if (!options.steps && !options.epochs)
    return Status::usage("neither steps nor epochs are given; training would not end");
  if (source.size() <= 0)
    return Status::refused("the data has no samples");
  if (session.plan().fullBatches() && source.batches(session.plan().batch()).full == 0)
    return Status::refused("the data has " + std::to_string(source.size()) +
                           " samples, the model's own loss needs full batches of " +
                           std::to_string(session.plan().batch()) +
                           "; compile with a smaller batch");
  if (!options.keepBest.empty() && options.checkpointFolder.empty())
    return Status::usage("keeping the best checkpoint needs a folder of checkpoints");
  if (!evalSource && !(options.keepBest.empty() && options.earlyStop.empty()))
    return Status::usage("there is no data to evaluate on: nothing can be called best");
  if (options.checkpoint.byAllRanks && session.ranks() == 1)
    return Status::usage(
        "this plan trains with one rank, which writes whole checkpoints: "
        "parts of them need several ranks");
  if (!options.checkpointFolder.empty() && !options.resume &&
      !listCheckpoints(options.checkpointFolder).empty())
    return Status::refused("the folder '" + options.checkpointFolder +
                           "' holds checkpoints already; resume from them or name "
                           "another folder");
  return Status::success();
}

Status TrainLoop::resume() {
  if (!options.resume || listCheckpoints(options.checkpointFolder).empty())
    return Status::success();
  auto info = loadCheckpoint(session, options.checkpointFolder, options.load);
  if (!info)
    return info.status();
  summary.notes = info->notes;
  summary.notes.push_back("resumed from '" + info->path + "' at update " +
                          std::to_string(info->updates) + ", sample " +
                          std::to_string(info->samples));
  return Status::success();
}

/// A model that computes its own loss cannot be trained on the short batch at the end of
/// an epoch.
bool TrainLoop::isTailSkipped() const {
  EpochBatches batches = source.batches(session.plan().batch());
  return session.plan().fullBatches() && batches.full < batches.all;
}

int64_t TrainLoop::updatesPerEpoch() const {
  EpochBatches batches = source.batches(session.plan().batch());
  int64_t accumulate = session.plan().accumulate() * session.ranks();
  int64_t taken = session.plan().fullBatches() ? batches.full : batches.all;
  return (taken + accumulate - 1) / accumulate;
}

int64_t TrainLoop::target() const {
  int64_t bySteps = options.steps.value_or(INT64_MAX);
  int64_t byEpochs = INT64_MAX;
  if (options.epochs &&
      __builtin_mul_overflow(*options.epochs, updatesPerEpoch(), &byEpochs))
    byEpochs = INT64_MAX;
  return std::min(bySteps, byEpochs);
}

/// Micro-batches up to the next update. The end of an epoch ends a window too.
Status TrainLoop::runWindow(StepResult &result, double &computeUs) {
  if (session.ranks() > 1)
    return runShare(result, computeUs);
  computeUs = 0;
  int64_t firstSample = session.samples();
  do {
    if (Status status = source.next(batch); !status.ok())
      return status;
    uint64_t beginNs = nowNs();
    bool isSkipped = isTailSkipped() && isShort(session, batch);
    bool isEpochEnd = source.endsEpoch(batch);
    Status status = isSkipped ? Status::success() : session.step(batch, result);
    if (status.ok() && isEpochEnd && !result.updated)
      status = session.flush(result);
    computeUs += static_cast<double>(nowNs() - beginNs) / 1e3;
    if (!status.ok())
      return explained(std::move(status), firstSample, result);
  } while (!result.updated);
  return Status::success();
}

/// The micro-batch at a position of the endless sequence.
Status TrainLoop::nextOf(int64_t position, int64_t count) {
  Status status = source.seek(position);
  if (status.ok())
    status = source.next(batch);
  if (status.ok() && (batch.firstSample != position || batch.count != count))
    return Status::usage("the source gives " + std::to_string(batch.count) +
                         " samples at " + std::to_string(batch.firstSample) +
                         ", several ranks need " + std::to_string(count) + " at " +
                         std::to_string(position) +
                         ": batches that are full up to the end of an epoch");
  return status;
}

/// A rank's micro-batches of a window: of all of them in order, rank r has those from
/// r * accumulate on. All ranks see the same sequence, and so the same end of an epoch.
Status TrainLoop::runShare(StepResult &result, double &computeUs) {
  computeUs = 0;
  int64_t share = session.plan().accumulate(), full = session.plan().batch();
  int64_t first = share * session.rank(), position = session.samples();
  const int64_t windowFirst = position; // of all ranks: any of them may have the value
  bool isEpochEnd = false;
  result = {};
  for (int64_t index = 0; index < share * session.ranks() && !isEpochEnd;) {
    int64_t left = source.size() - position % source.size();
    int64_t count = std::min(full, left);
    isEpochEnd = count == left;
    int64_t at = position;
    position += count;
    if (isTailSkipped() && count < full) {
      isEpochEnd = index > 0; // of an empty window: it begins with the next epoch
      continue;
    }
    if (index >= first && index < first + share) {
      Status status = nextOf(at, count);
      uint64_t beginNs = nowNs();
      if (status.ok())
        status = session.step(batch, result);
      computeUs += static_cast<double>(nowNs() - beginNs) / 1e3;
      if (!status.ok())
        return explained(std::move(status), windowFirst, result);
    }
    ++index;
  }
  if (result.updated)
    return Status::success();
  uint64_t beginNs = nowNs();
  Status status = session.flush(result);
  computeUs += static_cast<double>(nowNs() - beginNs) / 1e3;
  return status.ok() ? status : explained(std::move(status), windowFirst, result);
}

/// Ranks with other data, or another end, would take other samples than their own.
Status TrainLoop::agreeOnRun() const {
  Communicator *comm = session.communicator();
  if (!comm)
    return Status::success();
  const int64_t samples = source.size();
  const int64_t ends[] = {options.steps.value_or(-1), options.epochs.value_or(-1)};
  Status status =
      agree(*comm, std::as_bytes(std::span(&samples, 1)), "number of samples");
  return status.ok()
             ? agree(*comm, std::as_bytes(std::span(ends)), "number of steps or epochs")
             : status;
}

/// One byte from rank 0: it goes on working, or is done and training goes on or ends;
/// then also whether all save the best checkpoint.
Status TrainLoop::tellOthers(bool isDone) {
  Communicator *comm = session.communicator();
  constexpr uint8_t ends = 1, works = 2, savesBest = 4;
  uint8_t word = !isDone ? works : (stopped ? ends : 0) | (bestDue ? savesBest : 0);
  const Part part{&word, 1};
  if (Status status =
          comm->broadcast({&part, 1}, 0, {"between updates", session.updates(), "", 0});
      !status.ok())
    return status;
  others = word & works;
  if (!others) {
    stopped = word & ends;
    bestDue = word & savesBest;
  }
  return Status::success();
}

/// What takes long without a place to say so in between.
Status TrainLoop::whileOthersHear(const std::function<Status()> &work) {
  if (session.ranks() == 1)
    return work();
  constexpr double share = 0.25; // of the timeout
  std::chrono::duration<double> patience(share * session.plan().raw().timeout_s());
  std::future<Status> running;
  try {
    running = std::async(std::launch::async, work);
  } catch (const std::system_error &) { // no thread to be had: the others wait
    return work();
  }
  Status told = Status::success();
  while (running.wait_for(patience) != std::future_status::ready && told.ok())
    told = tellOthers(false);
  Status status = running.get();
  return status.ok() ? told : status;
}

/// Rank 0 works while the others wait, who hear from it so often that no timeout passes.
Status TrainLoop::withOthers(const std::function<Status()> &work) {
  if (session.ranks() == 1)
    return work();
  if (leads()) {
    Status status = work();
    return status.ok() ? tellOthers(true) : status;
  }
  Status status = tellOthers(false);
  while (status.ok() && others)
    status = tellOthers(false);
  return status;
}

/// Where the session does not say which operation came to a value that is not finite,
/// another micro-batch of the window does.
Status TrainLoop::explained(Status status, int64_t firstSample,
                            const StepResult &result) {
  if (!result.skipped || !result.nonFinite.empty() || !source.seek(firstSample).ok())
    return status;
  while (firstSample < session.samples() && source.next(batch).ok()) {
    if (std::string found = session.findNonFinite(batch); !found.empty()) {
      status.message += "; " + found;
      break;
    }
    firstSample += batch.count;
  }
  return status;
}

Status TrainLoop::save() {
  if (options.checkpointFolder.empty())
    return Status::success();
  auto path = saveCheckpoint(session, options.checkpointFolder, options.checkpoint);
  if (!path)
    return path.status();
  summary.checkpointPath = *path;
  return Status::success();
}

Status TrainLoop::runEval() {
  EvalBatchHook hook = [&](const Session &running, const Batch &evaluated) {
    Status status =
        options.onEvalBatch ? options.onEvalBatch(running, evaluated) : Status::success();
    return status.ok() && session.ranks() > 1 ? tellOthers(false) : status;
  };
  auto report = evaluate(session, *evalSource, hook);
  if (!report)
    return report.status();
  summary.eval = *report;
  if (options.onEval)
    options.onEval(*report);
  return judge(*report);
}

std::string TrainLoop::besideCheckpoints(const char *name) const {
  return (std::filesystem::path(options.checkpointFolder) / name).string();
}

/// A new run judges anew; files of one before it must not decide.
Status TrainLoop::loadBest() {
  if (!options.earlyStop.empty())
    stopper.emplace(options.earlyStop);
  if (!options.keepBest.empty())
    keeper.emplace(options.keepBest);
  if (!options.resume || options.checkpointFolder.empty())
    return Status::success();
  Status status = Status::success();
  if (stopper)
    status = stopper->load(besideCheckpoints("early-stop.txt"));
  if (status.ok() && keeper)
    status = keeper->load(besideCheckpoints("best/best.txt"));
  return status;
}

Result<double> TrainLoop::figure(const std::string &metric,
                                 const EvalReport &report) const {
  if (metric == "loss")
    return report.loss;
  if (!options.metric)
    return Status::usage("the metric '" + metric + "' is not computed; expected 'loss'");
  return options.metric(metric);
}

static Status makeFolder(const std::string &path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  return error ? Status::refused("cannot create the folder '" + path +
                                 "': " + error.message())
               : Status::success();
}

/// Keeps the checkpoint of the best evaluation, and ends training when there was no
/// better one for long.
Status TrainLoop::judge(const EvalReport &report) {
  if (keeper) {
    auto value = figure(options.keepBest, report);
    if (!value)
      return value.status();
    bool isBest = keeper->add(*value, report.updates);
    bestDue = isBest && savesTogether();
    if (isBest && !bestDue)
      if (Status status = whileOthersHear([&] { return saveBest(); }); !status.ok())
        return status;
    if (Status status = makeFolder(besideCheckpoints("best")); !status.ok())
      return status;
    if (!bestDue)
      if (Status status = keeper->save(besideCheckpoints("best/best.txt")); !status.ok())
        return status;
  }
  if (!stopper)
    return Status::success();
  auto value = figure(options.earlyStop, report);
  if (!value)
    return value.status();
  stopper->add(*value, report.updates);
  if (stopper->evaluationsSince() >= options.patience) {
    summary.isStoppedEarly = true;
    stopped = true;
  }
  if (options.checkpointFolder.empty())
    return Status::success();
  if (Status status = makeFolder(options.checkpointFolder); !status.ok())
    return status;
  return stopper->save(besideCheckpoints("early-stop.txt"));
}

Status TrainLoop::saveBest() {
  CheckpointOptions one = options.checkpoint;
  one.keep = 1;
  one.byAllRanks = bestDue;
  auto path = saveCheckpoint(session, besideCheckpoints("best"), one);
  if (!path)
    return path.status();
  summary.bestPath = *path;
  bool isLate = bestDue && keeper; // of rank 0, behind the checkpoint that it is about
  bestDue = false;
  return isLate ? keeper->save(besideCheckpoints("best/best.txt")) : Status::success();
}

Status TrainLoop::afterUpdate(const StepResult &result, double rate, double computeUs) {
  int64_t updates = session.updates();
  summary.losses.push_back(result.windowLoss());
  stepUs.push_back(computeUs);
  summary.lossScale = result.lossScale;
  summary.skipped += result.skipped;
  if (result.fluctuation)
    summary.rateCuts.push_back({updates, *result.fluctuation, session.spikeFactor()});
  if (options.stopOnNonFinite && !result.skipped && !std::isfinite(result.windowLoss()))
    return Status::damaged(
        "the loss of update " + std::to_string(updates) +
        " is not finite (samples up to " + std::to_string(session.samples()) +
        "); lower the rate, clip gradients, or go back to a checkpoint");
  if (options.onUpdate) {
    TrainProgress progress;
    progress.updates = updates;
    progress.target = end;
    progress.samples = session.samples();
    progress.epoch = (session.samples() - 1) / source.size();
    progress.loss = result.windowLoss();
    progress.rate = rate;
    progress.gradNorm = result.gradNorm;
    progress.lossScale = result.lossScale;
    progress.skipped = result.skipped;
    progress.skippedUpdates = session.skippedUpdates();
    progress.outlier = result.outlier;
    progress.fluctuation = result.fluctuation;
    progress.spikeFactor = session.spikeFactor();
    progress.stepUs = computeUs;
    bool goesOn = options.onUpdate(progress);
    // Of several ranks none ends alone: they hear of it when they meet next.
    (session.ranks() == 1 ? stopped : stopsNext) |= !goesOn;
  }
  bool isLast = stopped || updates >= end;
  bool evalDue = options.evalEvery > 0 && updates % options.evalEvery == 0;
  bool saveDue = options.checkpointEvery > 0 && updates % options.checkpointEvery == 0;
  return atSyncPoint(isLast || evalDue, isLast || saveDue);
}

/// All ranks come here together; rank 0 evaluates and writes, or all of them write.
Status TrainLoop::atSyncPoint(bool evaluates, bool saves) {
  if (!evaluates && !saves)
    return Status::success();
  bool wasStopped = stopped;
  const fbs::Plan &plan = session.plan().raw();
  bool isLast = stopped || session.updates() >= end;
  bool flushes = (evaluates && plan.flush_eval()) || (saves && plan.flush_save()) ||
                 (isLast && plan.flush_end());
  if (flushes)
    if (Status status = session.applyPending(); !status.ok())
      return status;
  Status status = withOthers([&] {
    stopped |= stopsNext;
    if (evaluates && evalSource)
      if (Status status = runEval(); !status.ok())
        return status;
    bool now = saves || stopped != wasStopped;
    return now && !savesTogether() ? whileOthersHear([&] { return save(); })
                                   : Status::success();
  });
  if (status.ok() && bestDue)
    status = saveBest();
  bool together = savesTogether() && (saves || stopped != wasStopped);
  return status.ok() && together ? save() : status;
}

void TrainLoop::finish() {
  summary.updates = session.updates();
  summary.steps = session.updates() - firstUpdate;
  summary.samples = session.samples() - firstSample;
  summary.best = keeper ? keeper : stopper;
  if (!summary.losses.empty())
    summary.loss = summary.losses.back();
  if (!stepUs.empty()) {
    auto middle = stepUs.begin() + static_cast<std::ptrdiff_t>(stepUs.size() / 2);
    std::nth_element(stepUs.begin(), middle, stepUs.end());
    summary.stepUsMedian = *middle;
  }
  if (wallSeconds > 0)
    summary.samplesPerSecond = static_cast<double>(summary.samples) / wallSeconds;
}

Status TrainLoop::run() {
  Status status = checkOptions();
  if (status.ok())
    status = resume();
  if (status.ok() && options.onStart)
    status = options.onStart(session);
  if (status.ok())
    status = session.agreeOnState();
  if (status.ok())
    status = agreeOnRun();
  bool together = options.checkpoint.byAllRanks || session.plan().hasShards();
  if (status.ok() && together && !options.checkpointFolder.empty() && session.ranks() > 1)
    status = checkSharedFolder(*session.communicator(), options.checkpointFolder);
  if (status.ok() && leads())
    status = loadBest();
  if (status.ok())
    status = source.seek(session.samples());
  if (!status.ok())
    return status;
  if (isTailSkipped())
    summary.notes.push_back(
        "the last " + std::to_string(source.batches(session.plan().batch()).restSamples) +
        " samples of each epoch are skipped: the model's own loss needs full batches");
  firstUpdate = session.updates();
  firstSample = session.samples();
  end = target();
  size_t expected =
      static_cast<size_t>(std::clamp<int64_t>(end - firstUpdate, 0, int64_t(1) << 20));
  summary.losses.reserve(expected);
  stepUs.reserve(expected);
  Refresh refresh(session, source);
  while (!stopped && session.updates() < end) {
    StepResult result;
    double computeUs = 0, rate = session.rate().ok() ? *session.rate() : 0;
    uint64_t beginNs = nowNs();
    status = runJudged(
        session, source, [&](StepResult &of, double &us) { return runWindow(of, us); },
        result, computeUs, summary.notes);
    wallSeconds += static_cast<double>(nowNs() - beginNs) / 1e9;
    if (status.ok())
      status = refresh.after(session, source);
    if (status.ok())
      status = afterUpdate(result, rate, computeUs);
    if (!status.ok())
      return status;
  }
  finish();
  return Status::success();
}

} // namespace

Result<TrainSummary> train(Session &session, BatchSource &source, BatchSource *evalSource,
                           const TrainOptions &options) {
  TrainLoop loop(session, source, evalSource, options);
  if (Status status = loop.run(); !status.ok()) {
    // The others would wait for this rank in vain.
    if (Communicator *comm = session.communicator())
      comm->abort(status);
    return status;
  }
  return std::move(loop.summary);
}

} // namespace sluice
