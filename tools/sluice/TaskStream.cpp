#include "tools/sluice/TaskStream.h"

#include "runtime/continual/Consolidation.h"
#include "runtime/continual/StateSnapshot.h"
#include "runtime/replay/ReplayOffer.h"
#include "runtime/replay/ReplayStore.h"
#include "tools/sluice/Progress.h"
#include "tools/sluice/StreamRecord.h"
#include "tools/sluice/TaskEvaluation.h"
#include "tools/sluice/TaskPicture.h"

#include <cmath>
#include <filesystem>

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

class TaskStream {
public:
  TaskStream(const StreamOptions &options, Console &console)
      : options(options), console(console), folder(options.run.checkpoint) {
    for (const TaskFile &task : options.tasks)
      names.push_back(task.name);
  }

  Status run();

private:
  Status checkRequest() const;
  Status open();
  Status checkData();
  Status goOn();
  Status learn(size_t index);
  Result<TrainSummary> trainOn(size_t index, int64_t firstUpdate, int64_t firstSample);
  Status endTask(size_t index, Json &report);
  Status consolidateTask(size_t index, Json &report);
  void tellForgetting(size_t index);
  Status commit(size_t index, Json report);
  void removeOld(size_t index, const std::string &oldReplay) const;
  Status finish();
  std::string taskFolder(size_t index) const {
    char text[32];
    std::snprintf(text, sizeof text, "task-%04zu", index + 1);
    return (fs::path(folder) / text).string();
  }
  int64_t epochsOf(const TaskFile &task) const {
    return task.epochs > 0 ? task.epochs : task.steps > 0 ? 0 : options.epochs;
  }
  int64_t stepsOf(const TaskFile &task) const {
    return task.steps > 0 ? task.steps : task.epochs > 0 ? 0 : options.steps;
  }

  const StreamOptions &options;
  Console &console;
  std::string folder;
  std::vector<std::string> names;
  std::unique_ptr<Session> session;
  std::optional<TaskEvaluation> evaluation;
  std::optional<ReplayBuffer> buffer;
  StreamRecord record;
};

Status TaskStream::checkRequest() const {
  if (folder.empty())
    return Status::usage("--tasks needs --checkpoint DIR, where it keeps what is done");
  if (!options.run.data.empty() || !options.run.buckets.empty())
    return Status::usage("--tasks names the data of each task: leave out --data and "
                         "--bucket");
  for (const TaskFile &task : options.tasks)
    if (epochsOf(task) <= 0 && stepsOf(task) <= 0)
      return Status::usage("task '" + task.name +
                           "' does not say how long it is "
                           "learned: 'epochs' or 'steps' in it, "
                           "or --epochs N or --steps N for all");
  if (!options.resume && (hasStream(folder) || !listCheckpoints(folder).empty() ||
                          !listCheckpoints(taskFolder(0)).empty()))
    return Status::refused("the folder '" + folder +
                           "' holds a stream or checkpoints "
                           "already; --resume goes on with it");
  return Status::success();
}

Status TaskStream::open() {
  auto opened = openSession(options.run, console);
  if (!opened)
    return opened.status();
  session = std::move(*opened);
  const Plan &plan = session->plan();
  if (plan.ranks() > 1)
    return Status::refused("--tasks is not yet supported for plans of several ranks");
  if (plan.state("task/cursor"))
    return Status::refused("--tasks is not yet supported for plans with "
                           "'continual.masks'; train each with --data and --task NAME");
  if (plan.buckets() > 1)
    return Status::refused("--tasks is not yet supported for plans of several shapes");
  if (plan.raw().continual() && plan.raw().continual()->refresh() > 0)
    return Status::refused("--tasks consolidates at the ends of tasks, the plan whenever "
                           "data is new; compile without 'continual.ewc.refresh'");
  if (plan.raw().replay()) {
    auto made = makeReplayBuffer(plan, session->seed());
    if (!made)
      return made.status();
    buffer.emplace(std::move(*made));
  }
  return Status::success();
}

/// All of it, before anything is learned.
Status TaskStream::checkData() {
  for (const TaskFile &task : options.tasks) {
    auto training = openTaskSource(*session, task.data, false, nullptr, 0);
    if (!training) {
      Status status = training.status();
      status.message = "task '" + task.name + "': " + status.message;
      return status;
    }
  }
  auto opened = TaskEvaluation::open(*session, options.tasks, options.metrics);
  if (!opened)
    return opened.status();
  evaluation.emplace(std::move(*opened));
  return Status::success();
}

/// From what is done; new tasks may have come since.
Status TaskStream::goOn() {
  auto loaded = loadStream(folder, names);
  if (!loaded)
    return loaded.status();
  record = std::move(*loaded);
  if (record.tasks.empty()) {
    auto metric = evaluation->chooseMetric(options.taskMetric);
    if (metric)
      record.metric = *metric;
    return metric ? Status::success() : metric.status();
  }
  if (!record.checkpoint.empty()) {
    auto info = loadCheckpoint(*session, (fs::path(folder) / record.checkpoint).string());
    if (!info)
      return info.status();
    for (const std::string &note : info->notes)
      console.message("note: " + note);
  }
  if (buffer && !record.replay.empty()) {
    auto state = loadReplay(*buffer, (fs::path(folder) / record.replay).string());
    if (!state)
      return state.status();
  }
  if (record.matrix.back().size() == names.size())
    return Status::success();
  // What tasks that have come since would have had then is not known: as of now.
  auto row = evaluation->run(*session, record.metric);
  if (!row)
    return row.status();
  for (auto &known : record.matrix)
    for (size_t i = known.size(); i < names.size(); ++i)
      known.push_back(row->values[i]);
  return Status::success();
}

Result<TrainSummary> TaskStream::trainOn(size_t index, int64_t firstUpdate,
                                         int64_t firstSample) {
  const TaskFile &task = options.tasks[index];
  auto source = openTaskSource(*session, task.data, !options.run.noShuffle,
                               buffer ? &*buffer : nullptr, firstSample);
  if (!source)
    return source.status();
  const Plan &plan = session->plan();
  EpochBatches batches = (*source)->batches(plan.batch());
  int64_t taken = plan.fullBatches() ? batches.full : batches.all;
  int64_t perEpoch = (taken + plan.accumulate() - 1) / plan.accumulate();
  TrainOptions training;
  int64_t steps = stepsOf(task) > 0 ? stepsOf(task) : epochsOf(task) * perEpoch;
  training.steps = firstUpdate + steps;
  training.checkpointFolder = taskFolder(index);
  training.checkpointEvery = options.checkpointEvery;
  training.resume = options.resume;
  training.onStart = options.onStart;
  Progress progress;
  training.onUpdate = [&](const TrainProgress &now) {
    progress.update(now);
    return true;
  };
  auto summary = train(*session, **source, nullptr, training);
  progress.finish();
  return summary;
}

/// Tasks before: how much of each is gone, per epoch since.
void TaskStream::tellForgetting(size_t index) {
  const double sign = isHigherBetter(record.metric) ? 1 : -1;
  for (size_t i = 0; i < index; ++i) {
    double best = -INFINITY;
    for (size_t t = 0; t < index; ++t)
      best = std::max(best, sign * record.matrix[t][i]);
    double epochs = std::max<double>(1, double(epochsOf(options.tasks[index])));
    buffer->setForgetting(int64_t(i), best, sign * record.matrix[index][i],
                          epochs * double(index - i));
  }
}

Status TaskStream::consolidateTask(size_t index, Json &report) {
  if (!hasPenalty(session->plan()))
    return Status::success();
  std::unique_ptr<BatchSource> data;
  if (session->plan().program("fisher")) {
    auto opened = openSource(*session, "fisher", options.tasks[index].data, {}, false);
    if (!opened)
      return opened.status();
    data = std::move(*opened);
  }
  auto done = data ? consolidate(*session, *data) : consolidate(*session, nullptr);
  if (!done)
    return done.status();
  report["consolidated"] = {{"samples", done->samples},
                            {"importance_mean", done->importanceMean}};
  return Status::success();
}

/// What the next tasks are held to: samples to show again, anchors.
Status TaskStream::endTask(size_t index, Json &report) {
  if (buffer) {
    tellForgetting(index);
    auto data = openNew(*session, options.tasks[index].data, false, 0);
    if (!data)
      return data.status();
    if (Status status = offerTask(*session, **data, int64_t(index), *buffer);
        !status.ok())
      return status;
    Json classes = Json::object();
    for (auto &[label, count] : buffer->classCounts())
      classes[std::to_string(label)] = count;
    report["replay"] = {{"samples", buffer->size()},
                        {"seen", buffer->seen()},
                        {"capacity", buffer->capacity()},
                        {"bytes", buffer->bytes()},
                        {"classes", classes}};
  }
  return consolidateTask(index, report);
}

Status TaskStream::commit(size_t index, Json report) {
  const std::string oldReplay = record.replay;
  auto path = saveCheckpoint(*session, folder);
  if (!path)
    return path.status();
  record.checkpoint = fs::path(*path).filename().string();
  if (buffer) {
    record.replay = "replay-" + std::to_string(index + 1) + ".bin";
    if (Status status = saveReplay(*buffer, (fs::path(folder) / record.replay).string());
        !status.ok())
      return status;
  }
  record.tasks.push_back(names[index]);
  record.reports.push_back(std::move(report));
  if (Status status = record.save(folder); !status.ok())
    return status;
  removeOld(index, oldReplay);
  return Status::success();
}

/// What a run that goes on needs no more.
void TaskStream::removeOld(size_t index, const std::string &oldReplay) const {
  std::error_code error;
  fs::remove_all(taskFolder(index), error);
  if (!oldReplay.empty() && oldReplay != record.replay)
    fs::remove(fs::path(folder) / oldReplay, error);
}

Status TaskStream::learn(size_t index) {
  const TaskFile &task = options.tasks[index];
  StateSnapshot before(session->planHandle());
  if (Status status = before.take(*session); !status.ok())
    return status;
  Result<TaskRow> old =
      task.acceptIf ? evaluation->run(*session, record.metric) : TaskRow();
  if (!old)
    return old.status();
  if (buffer && buffer->size() == 0)
    console.message("note: task '" + task.name +
                    "' replays nothing: the buffer is empty");
  auto summary = trainOn(index, session->updates(), session->samples());
  if (!summary)
    return summary.status();
  Json report = {{"name", task.name},
                 {"updates", session->updates()},
                 {"steps", summary->steps},
                 {"loss", summary->loss},
                 {"step_us_median", summary->stepUsMedian}};
  if (options.losses)
    report["losses"] = summary->losses;
  for (const std::string &note : summary->notes)
    console.message("note: " + note);
  auto row = evaluation->run(*session, record.metric);
  if (!row)
    return row.status();
  auto accepted = isAccepted(task, index, *old, *row, record.metric, report);
  if (!accepted)
    return accepted.status();
  report["accepted"] = *accepted;
  if (!*accepted) {
    report["rejected"] = row->values;
    if (Status status = before.apply(*session); !status.ok())
      return status;
    row = std::move(old);
  }
  report["figures"] = row->figures;
  record.matrix.push_back(row->values);
  std::string line = "after '" + task.name + "':";
  for (size_t i = 0; i < names.size(); ++i) {
    char text[64];
    std::snprintf(text, sizeof text, " %.4f", row->values[i]);
    line += text;
  }
  console.line(line + " (" + record.metric + " by task)" +
               (*accepted ? ""
                          : "; rejected by '" + task.acceptIf->text +
                                "', the weights before are back"));
  if (*accepted)
    if (Status status = endTask(index, report); !status.ok())
      return status;
  return commit(index, std::move(report));
}

Status TaskStream::finish() {
  console.result = record.summary(names);
  console.result["checkpoint"] =
      record.checkpoint.empty() ? "" : (fs::path(folder) / record.checkpoint).string();
  const std::pair<const char *, std::string> files[] = {
      {"tasks.json", console.result.dump(1) + "\n"},
      {"tasks-matrix.svg", taskHeatMap(record.matrix, names, record.metric)},
      {"tasks-curves.svg", taskCurves(record.matrix, names, record.metric)}};
  for (const auto &[name, text] : files)
    if (Status status = writeWholeFile((fs::path(folder) / name).string(), text);
        !status.ok())
      return status;
  std::string line = record.metric + " of all tasks";
  for (const char *key : {"acc", "backward_transfer", "forgetting"})
    if (console.result.contains(key)) {
      char text[96];
      std::snprintf(text, sizeof text, ", %s %.4f", key,
                    console.result[key].get<double>());
      line += text;
    }
  console.line(line + "; written to " + folder + "/tasks.json");
  return Status::success();
}

Status TaskStream::run() {
  Status status = checkRequest();
  if (status.ok())
    status = open();
  if (status.ok())
    status = checkData();
  if (status.ok())
    status = goOn();
  for (size_t index = record.tasks.size(); status.ok() && index < names.size(); ++index)
    status = learn(index);
  return status.ok() ? finish() : status;
}

} // namespace

int runStream(const StreamOptions &options, Console &console) {
  TaskStream stream(options, console);
  Status status = stream.run();
  return status.ok() ? console.finish() : console.fail(status);
}

} // namespace sluice::cli
