// sluice train: runs a plan's training steps on data.

#include "runtime/Trainer.h"
#include "tools/sluice/AllocationCount.h"
#include "tools/sluice/EvalMetrics.h"
#include "tools/sluice/GradientLog.h"
#include "tools/sluice/HyperOptions.h"
#include "tools/sluice/Progress.h"
#include "tools/sluice/RunOptions.h"
#include "tools/sluice/StreamRecord.h"
#include "tools/sluice/TaskOptions.h"
#include "tools/sluice/TaskStream.h"
#include "tools/sluice/TrainRanks.h"

#include <fstream>

namespace sluice::cli {
namespace {

struct TrainArguments {
  RunOptions run;
  std::vector<std::string> evalData, evalBuckets;
  bool checkpointShards = false;
  int64_t steps = 0, epochs = 0, evalEvery = 0, checkpointEvery = 0;
  std::string trace, log, communicator = "local";
  int rank = -1;
  bool growsHead = false, resume = false, losses = false, measure = false;
  std::vector<std::string> metrics, gradients;
  std::string earlyStop, keepBest, task;
  std::vector<std::string> tasks;
  std::string taskMetric;
  HyperOptions hyper;
};

/// METRIC[,patience=N]
Status parseEarlyStop(const std::string &text, TrainOptions &options) {
  if (text.empty())
    return Status::success();
  size_t comma = text.find(',');
  options.earlyStop = text.substr(0, comma);
  if (comma == std::string::npos)
    return Status::success();
  const std::string key = "patience=", rest = text.substr(comma + 1);
  char *end = nullptr;
  options.patience =
      rest.starts_with(key) ? std::strtoll(rest.c_str() + key.size(), &end, 10) : 0;
  if (!end || *end != '\0' || options.patience < 1)
    return Status::usage("--early-stop '" + text +
                         "': expected METRIC or METRIC,patience=N with N at least 1");
  return Status::success();
}

/// What a stream of tasks has no use for.
Status checkStream(const TrainArguments &arguments) {
  const std::pair<const char *, bool> others[] = {
      {"--eval-data", !arguments.evalData.empty()},
      {"--eval-every", arguments.evalEvery > 0},
      {"--early-stop", !arguments.earlyStop.empty()},
      {"--keep-best", !arguments.keepBest.empty()},
      {"--checkpoint-shards", arguments.checkpointShards},
      {"--trace", !arguments.trace.empty()},
      {"--log", !arguments.log.empty()},
      {"--gradients", !arguments.gradients.empty()},
      {"--task", !arguments.task.empty()},
      {"--grow-head", arguments.growsHead},
      {"--measure", arguments.measure},
      {"--rank", arguments.rank >= 0}};
  for (auto [option, isGiven] : others)
    if (isGiven)
      return Status::usage(std::string(option) + " is not yet supported with --tasks");
  if (arguments.steps > 0 && arguments.epochs > 0)
    return Status::usage("--steps and --epochs both say how long a task is: give one");
  return Status::success();
}

int runTasks(const TrainArguments &arguments, Console &console) {
  Status status = checkStream(arguments);
  auto tasks = readTaskFiles(arguments.tasks);
  if (!status.ok() || !tasks)
    return console.fail(status.ok() ? tasks.status() : status);
  StreamOptions options;
  options.run = arguments.run;
  options.tasks = std::move(*tasks);
  options.metrics = arguments.metrics;
  options.taskMetric = arguments.taskMetric;
  options.epochs = arguments.epochs, options.steps = arguments.steps;
  options.checkpointEvery = arguments.checkpointEvery;
  options.resume = arguments.resume, options.losses = arguments.losses;
  options.onStart = [&](Session &starting) {
    return applyHyperOptions(arguments.hyper, starting);
  };
  return runStream(options, console);
}

Status checkArguments(const TrainArguments &arguments) {
  if (arguments.run.data.empty())
    return Status::usage("--data is required, or --tasks");
  if (!arguments.taskMetric.empty())
    return Status::usage("--task-metric needs --tasks");
  if (arguments.steps <= 0 && arguments.epochs <= 0)
    return Status::usage("say how long to train: --steps N or --epochs N");
  bool meets = isMeeting(arguments.communicator);
  if (!meets && arguments.communicator != "local" && arguments.communicator != "mpi")
    return Status::usage("--comm " + arguments.communicator +
                         " is not yet supported, only local (threads of this process), "
                         "mpi (processes of an MPI job), and tcp:HOST:PORT or file:PATH "
                         "(processes that meet there)");
  if (meets != (arguments.rank >= 0))
    return Status::usage(meets ? "--comm " + arguments.communicator +
                                     " needs --rank R: which one this process is"
                               : "--rank is for processes that meet: --comm "
                                 "tcp:HOST:PORT or file:PATH");
  if (arguments.resume && arguments.run.checkpoint.empty())
    return Status::usage("--resume needs --checkpoint DIR");
  if (!arguments.run.checkpoint.empty() && hasStream(arguments.run.checkpoint))
    return Status::refused("--checkpoint '" + arguments.run.checkpoint +
                           "' is the folder of a sequence of tasks, which other steps "
                           "would part from its record; go on with --tasks, or give "
                           "another folder");
  if (arguments.growsHead && !arguments.resume)
    return Status::usage("--grow-head needs --resume: it says how to load");
  if (arguments.checkpointShards && arguments.run.checkpoint.empty())
    return Status::usage("--checkpoint-shards needs --checkpoint DIR");
  if (arguments.evalData.empty()) {
    const std::pair<const char *, bool> needing[] = {
        {"--eval-every", arguments.evalEvery > 0},
        {"--eval-bucket", !arguments.evalBuckets.empty()},
        {"--early-stop", !arguments.earlyStop.empty()},
        {"--keep-best", !arguments.keepBest.empty()},
        {"--metric", !arguments.metrics.empty()}};
    for (auto [option, isGiven] : needing)
      if (isGiven)
        return Status::usage(std::string(option) + " needs --eval-data");
  }
  if (!arguments.earlyStop.empty() && arguments.evalEvery <= 0)
    return Status::usage("--early-stop needs --eval-every N");
  if (!arguments.keepBest.empty() && arguments.run.checkpoint.empty())
    return Status::usage("--keep-best needs --checkpoint DIR");
  return Status::success();
}

/// One line per update.
class CsvLog {
public:
  Status open(const std::string &path) {
    if (path.empty())
      return Status::success();
    file.open(path);
    if (!file)
      return Status::refused("cannot write the log '" + path +
                             "': check that the folder exists and is writable");
    file << "update,samples,loss,lr,grad_norm,loss_scale,skipped\n";
    return Status::success();
  }
  void write(const TrainProgress &progress) {
    if (!file.is_open())
      return;
    file.precision(9);
    file << progress.updates << ',' << progress.samples << ',' << progress.loss << ','
         << progress.rate << ',';
    if (progress.gradNorm)
      file << *progress.gradNorm;
    file << ',';
    if (progress.lossScale)
      file << *progress.lossScale;
    file << ',' << progress.skipped << '\n';
  }

private:
  std::ofstream file;
};

void report(const TrainArguments &arguments, const Session &session,
            const TrainSummary &summary, Console &console) {
  Json &out = console.result;
  out["steps"] = summary.steps;
  out["updates"] = summary.updates;
  if (arguments.losses)
    out["losses"] = summary.losses;
  out["loss"] = summary.loss;
  if (summary.lossScale)
    out["loss_scale"] = *summary.lossScale;
  if (summary.lossScale || summary.skipped > 0)
    out["skipped"] = summary.skipped;
  out["step_us_median"] = summary.stepUsMedian;
  out["samples_per_s"] = summary.samplesPerSecond;
  PlanMemory memory = session.plan().memory();
  out["arena_bytes"] = memory.stateBytes + memory.stepBytes;
  if (arguments.measure)
    out["arena_bytes_measured"] = memory.stateBytes + session.stepBytesTouched();
  out["host_bytes"] = memory.hostStateBytes + memory.hostStepBytes;
  if (arguments.measure)
    out["host_bytes_measured"] = memory.hostStateBytes + session.hostStepBytesTouched();
  out["peak_rss_bytes"] = peakResidentBytes();
  out["anonymous_bytes"] = anonymousBytes();
  out["threads"] = session.threads();
  for (const std::string &note : summary.notes)
    console.message("note: " + note);
  char text[200];
  std::snprintf(
      text, sizeof text,
      "trained %lld updates: loss %.6g, %.0f samples/s, step %.0f us (median), arena %s",
      static_cast<long long>(summary.steps), summary.loss, summary.samplesPerSecond,
      summary.stepUsMedian, sizeText(memory.stateBytes + memory.stepBytes).c_str());
  console.line(text);
  if (summary.lossScale) {
    std::snprintf(text, sizeof text, "loss scale %g, %lld updates skipped",
                  static_cast<double>(*summary.lossScale),
                  static_cast<long long>(summary.skipped));
    console.line(text);
  }
  for (const RateCut &cut : summary.rateCuts) {
    out["rate_cuts"].push_back({{"update", cut.update},
                                {"fluctuation", cut.fluctuation},
                                {"factor", cut.factor}});
    std::snprintf(text, sizeof text,
                  "the loss fluctuated by %.0f%% up to update %lld: rates times %g from "
                  "there on",
                  100 * cut.fluctuation, static_cast<long long>(cut.update), cut.factor);
    console.line(text);
  }
  if (summary.isStoppedEarly)
    console.line("stopped early: " + arguments.earlyStop + " has not improved");
  out["stopped_early"] = summary.isStoppedEarly;
  if (summary.best && summary.best->value()) {
    out["best"] = {{"metric", summary.best->metric()},
                   {"value", *summary.best->value()},
                   {"updates", summary.best->updates()}};
    if (!summary.bestPath.empty())
      out["best"]["checkpoint"] = summary.bestPath;
    std::snprintf(text, sizeof text, "best %s %.6g, after %lld updates",
                  summary.best->metric().c_str(), *summary.best->value(),
                  static_cast<long long>(summary.best->updates()));
    console.line(text + (summary.bestPath.empty() ? "" : ": " + summary.bestPath));
  }
  if (!summary.checkpointPath.empty()) {
    out["checkpoint"] = summary.checkpointPath;
    console.line("checkpoint: " + summary.checkpointPath);
  }
}

Result<std::unique_ptr<BatchSource>> openTraining(const TrainArguments &arguments,
                                                  const Session &session) {
  if (session.plan().raw().replay() && !arguments.run.buckets.empty())
    return Status::usage("--bucket: the plan has one shape");
  if (session.plan().raw().replay())
    return openTaskSource(session, arguments.run.data, !arguments.run.noShuffle, nullptr,
                          0);
  std::string program = session.plan().trainingProgram();
  return openSource(session, program, arguments.run.data, arguments.run.buckets,
                    !arguments.run.noShuffle);
}

/// What all ranks do alike.
TrainOptions sharedOptions(const TrainArguments &arguments) {
  TrainOptions options;
  if (arguments.steps > 0)
    options.steps = arguments.steps;
  if (arguments.epochs > 0)
    options.epochs = arguments.epochs;
  options.evalEvery = arguments.evalEvery;
  options.checkpointFolder = arguments.run.checkpoint;
  options.checkpointEvery = arguments.checkpointEvery;
  options.checkpoint.byAllRanks = arguments.checkpointShards;
  options.resume = arguments.resume;
  options.load.growsHeads = arguments.growsHead;
  options.onStart = [&](Session &starting) {
    return applyHyperOptions(arguments.hyper, starting);
  };
  return options;
}

/// A rank that neither logs nor writes.
Status runOther(const TrainArguments &arguments, const Console &console,
                Communicator &comm) {
  auto session = openSession(arguments.run, console, 0, arguments.measure, &comm);
  if (!session)
    return session.status();
  auto source = openTraining(arguments, **session);
  if (!source)
    return source.status();
  auto summary = train(**session, **source, nullptr, sharedOptions(arguments));
  return summary ? Status::success() : summary.status();
}

Result<std::unique_ptr<TrainRanks>> startRanks(const TrainArguments &arguments,
                                               const Console &console) {
  auto plan = PlanReader::readFile(arguments.run.plan);
  if (!plan)
    return plan.status();
  int threads = arguments.run.threads > 0 ? arguments.run.threads : (*plan)->threads();
  if (arguments.communicator == "local")
    countAllocationsOf(static_cast<int>((*plan)->ranks()));
  return TrainRanks::start(
      **plan, arguments.communicator, arguments.rank, threads,
      [&](Communicator &comm) { return runOther(arguments, console, comm); });
}

int runLeader(const TrainArguments &arguments, TrainRanks &ranks, Console &console);

int runTrain(const TrainArguments &arguments, Console &console) {
  if (!arguments.tasks.empty())
    return runTasks(arguments, console);
  if (Status status = checkArguments(arguments); !status.ok())
    return console.fail(status);
  auto ranks = startRanks(arguments, console);
  if (!ranks)
    return console.fail(ranks.status());
  if ((*ranks)->leads())
    return runLeader(arguments, **ranks, console);
  Status status = runOther(arguments, console, *(*ranks)->communicator());
  if (!status.ok())
    return console.fail((*ranks)->failed(status));
  status = (*ranks)->finish();
  return status.ok() ? 0 : console.fail(status);
}

/// Rank 0, or the only one: it logs, evaluates and writes.
int runLeader(const TrainArguments &arguments, TrainRanks &ranks, Console &console) {
  auto session =
      openSession(arguments.run, console, arguments.trace.empty() ? 0 : 1 << 16,
                  arguments.measure, ranks.communicator());
  if (!session)
    return console.fail(ranks.failed(session.status()));
  auto source = openTraining(arguments, **session);
  if (!source)
    return console.fail(source.status());
  std::unique_ptr<BatchSource> evalSource;
  if (!arguments.evalData.empty()) {
    auto opened =
        openSource(**session, "eval", arguments.evalData, arguments.evalBuckets, false);
    if (!opened)
      return console.fail(opened.status());
    evalSource = std::move(*opened);
  }
  CsvLog log;
  GradientLog gradients;
  Status opened = log.open(arguments.log);
  if (opened.ok())
    opened = gradients.open(arguments.gradients, (*session)->plan());
  if (!opened.ok())
    return console.fail(opened);

  Progress progress;
  TrainOptions options = sharedOptions(arguments);
  auto extra = parseMetrics(arguments.metrics);
  Status parsed = parseEarlyStop(arguments.earlyStop, options);
  if (!extra || !parsed.ok())
    return console.fail(extra ? parsed : extra.status());
  auto made = EvalMetrics::create((*session)->plan(), *extra);
  if (!made)
    return console.fail(made.status());
  EvalMetrics &metrics = *made;
  for (const std::string &name : {options.earlyStop, arguments.keepBest})
    if (!name.empty())
      if (Status status = metrics.checkName(name); !status.ok())
        return console.fail(status);
  Json figures;
  options.onUpdate = [&](const TrainProgress &now) {
    progress.update(now);
    log.write(now);
    gradients.add(now, **session);
    return true;
  };
  options.onEvalBatch = [&](const Session &running, const Batch &batch) {
    return metrics.add(running, batch);
  };
  options.onEval = [&](const EvalReport &eval) {
    progress.finish();
    figures = metrics.finish(eval);
    console.line("after " + std::to_string(eval.updates) +
                 " updates: " + EvalMetrics::text(figures));
    console.result["eval"] = figures;
  };
  TaskTraining task;
  if (Status status = checkTask((*session)->plan(), arguments.task); !status.ok())
    return console.fail(status);
  task.attach(**session, arguments.task, options);
  options.keepBest = arguments.keepBest;
  options.metric = [&](const std::string &name) {
    return EvalMetrics::figure(figures, name);
  };
  uint64_t allocationsBefore = allocationsInSteps();
  auto summary = train(**session, **source, evalSource.get(), options);
  progress.finish();
  if (!task.status().ok())
    return console.fail(task.status());
  Status others = summary ? ranks.finish() : summary.status();
  if (!others.ok())
    return console.fail(others);
  console.result["ranks"] = (*session)->ranks();
  console.result["allocations_in_steps"] = allocationsInSteps() - allocationsBefore;
  report(arguments, **session, *summary, console);
  if (Status status = gradients.finish(console); !status.ok())
    return console.fail(status);
  if (!arguments.trace.empty())
    if (Status status =
            writeTrace(*(*session)->trace(), (*session)->plan(), arguments.trace);
        !status.ok())
      return console.fail(status);
  return console.finish();
}

} // namespace

Command addTrain(CLI::App &parent, Console &console) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App *app = parent.add_subcommand("train", "Run a plan's training steps on data");
  addRunOptions(app, arguments->run,
                "folder of checkpoints: written at the end, and read with --resume");
  app->get_option("--data")->required(false); // or --tasks
  app->add_option("--tasks", arguments->tasks,
                  "A.yaml,B.yaml,...: learn these one after the other, and evaluate all "
                  "after each; a file has data, eval_data, and may have name, epochs or "
                  "steps, and accept_if: 'accuracy >= previous - 0.01'");
  app->add_option("--task-metric", arguments->taskMetric,
                  "with --tasks: what is compared; default accuracy, or loss");
  app->add_option("--steps", arguments->steps, "updates in total");
  app->add_option("--epochs", arguments->epochs, "passes over the data in total");
  app->add_option("--eval-data", arguments->evalData, "like --data, for evaluation");
  app->add_option("--eval-bucket", arguments->evalBuckets, "like --bucket, for it");
  app->add_option("--eval-every", arguments->evalEvery,
                  "evaluate every N updates; always at the end");
  app->add_option("--checkpoint-every", arguments->checkpointEvery,
                  "write a checkpoint every N updates");
  app->add_flag("--checkpoint-shards", arguments->checkpointShards,
                "several ranks: each writes a part of every checkpoint, and rank 0 the "
                "list of them last");
  app->add_option("--early-stop", arguments->earlyStop,
                  "METRIC[,patience=3]: end after so many evaluations without a better "
                  "one");
  app->add_option("--keep-best", arguments->keepBest,
                  "METRIC: keep the best evaluation's checkpoint in CHECKPOINT/best");
  addMetricOption(app, arguments->metrics);
  app->add_flag("--resume", arguments->resume,
                "go on from the newest checkpoint, bit for bit");
  app->add_flag("--grow-head", arguments->growsHead,
                "with --resume: the model has more classes than the checkpoint, of which "
                "weights, moments, anchors and importances are kept; new ones begin as "
                "the plan says");
  addHyperOptions(app, arguments->hyper);
  addTaskOption(app, arguments->task,
                "of a plan with masks: the task that the data is of; it ends with the "
                "last update");
  app->add_option("--trace", arguments->trace, "write a timeline for Perfetto (JSON)");
  app->add_option("--gradients", arguments->gradients,
                  "F.jsonl: norms by group and layer, and the effective rate, of every "
                  "update; F.svg: a picture by layer; may be repeated");
  app->add_option(
      "--log", arguments->log,
      "write a line per update as CSV: samples, loss, rate, norm, loss scale");
  app->add_option(
      "--comm", arguments->communicator,
      "local: the plan's ranks are threads of this process; mpi: this process "
      "is one of them, started by mpirun or srun; tcp:HOST:PORT or file:PATH: it is "
      "rank --rank, and all meet there");
  app->add_option("--rank", arguments->rank, "which rank this process is, from 0 on");
  app->add_flag("--losses", arguments->losses, "with --json: every loss");
  app->add_flag("--measure", arguments->measure,
                "fill the step reservation with a pattern and report the bytes touched");
  app->footer("Example:\n  sluice train model.plan --data "
              "images=idx:train-images.gz,scale=1/255 --data "
              "labels=idx:train-labels.gz --epochs 3 --checkpoint run");
  return {app, [arguments, &console] { return runTrain(*arguments, console); }};
}

} // namespace sluice::cli
