// sluice eval: loss and metrics; sluice infer: outputs.

#include "runtime/Checkpoint.h"
#include "tools/sluice/EvalMetrics.h"
#include "tools/sluice/InferOutputs.h"
#include "tools/sluice/RunOptions.h"
#include "tools/sluice/TaskOptions.h"

namespace sluice::cli {
namespace {

/// A session with the state of --checkpoint, when given.
Result<std::unique_ptr<Session>> openTrained(const RunOptions &options,
                                             const Console &console) {
  auto session = openSession(options, console);
  if (!session || options.checkpoint.empty())
    return session;
  auto loaded = loadCheckpoint(**session, options.checkpoint);
  if (!loaded)
    return loaded.status();
  for (const std::string &note : loaded->notes)
    console.message("note: " + note);
  return session;
}

struct EvalArguments {
  RunOptions run;
  std::string task;
  std::vector<std::string> metrics;
};

int runEval(const EvalArguments &arguments, Console &console) {
  const RunOptions &options = arguments.run;
  auto extra = parseMetrics(arguments.metrics);
  if (!extra)
    return console.fail(extra.status());
  auto session = openTrained(options, console);
  if (!session)
    return console.fail(session.status());
  auto view = viewTask(**session, arguments.task);
  if (!view)
    return console.fail(view.status());
  auto source = openSource(**session, "eval", options.data, options.buckets, false);
  if (!source)
    return console.fail(source.status());
  auto made = EvalMetrics::create((*session)->plan(), *extra);
  if (!made)
    return console.fail(made.status());
  EvalMetrics &metrics = *made;
  auto report =
      evaluate(**session, **source, [&](const Session &running, const Batch &batch) {
        return metrics.add(running, batch);
      });
  if (!report)
    return console.fail(report.status());
  console.result = metrics.finish(*report);
  console.line(EvalMetrics::text(console.result));
  return console.finish();
}

struct InferArguments {
  RunOptions run;
  std::string out, task;
};

int runInfer(const InferArguments &arguments, Console &console) {
  auto session = openTrained(arguments.run, console);
  if (!session)
    return console.fail(session.status());
  auto view = viewTask(**session, arguments.task);
  if (!view)
    return console.fail(view.status());
  if (!(*session)->plan().program("infer"))
    return console.fail(Status::refused(
        "the plan has no program 'infer'; compile with 'entries' that include it"));
  bool takesData = !(*session)->plan().inputs("infer").empty();
  if (takesData && arguments.run.data.empty())
    return console.fail(Status::usage("--data is required: the plan has inputs"));
  Result<std::unique_ptr<BatchSource>> source = std::unique_ptr<BatchSource>();
  if (takesData)
    source =
        openSource(**session, "infer", arguments.run.data, arguments.run.buckets, false);
  if (!source)
    return console.fail(source.status());
  OutputCollector outputs;
  // Where every input's value is known to the plan, there is one batch, without data.
  const int64_t wanted = takesData ? (*source)->size() : 1;
  for (int64_t samples = 0; samples < wanted;) {
    Batch batch;
    batch.count = (*session)->batchOf(0);
    if (takesData)
      if (Status status = (*source)->next(batch); !status.ok())
        return console.fail(status);
    Status status = (*session)->infer(batch);
    if (status.ok())
      status = outputs.add(**session, batch);
    if (!status.ok())
      return console.fail(status);
    samples += batch.count;
  }
  auto files = outputs.write(arguments.out);
  if (!files)
    return console.fail(files.status());
  console.result["outputs"] = Json::array();
  for (const WrittenOutput &file : *files) {
    Json entry = {{"name", file.name}, {"path", file.path}};
    console.line("wrote " + file.path);
    if (!file.shapesPath.empty()) {
      entry["shapes"] = file.shapesPath;
      console.line("wrote " + file.shapesPath +
                   ": the shape of each sample's part, "
                   "which are filled up with 0");
    }
    console.result["outputs"].push_back(entry);
  }
  return console.finish();
}

} // namespace

Command addEval(CLI::App &parent, Console &console) {
  auto arguments = std::make_shared<EvalArguments>();
  CLI::App *app = parent.add_subcommand("eval", "Compute loss and metrics on data");
  addMetricOption(app, arguments->metrics);
  addTaskOption(app, arguments->task, "task whose mask is used");
  addRunOptions(app, arguments->run,
                "folder of checkpoints (or one file) with the trained state");
  app->footer("Example: sluice eval model.plan --data "
              "images=idx:test-images.gz,scale=1/255 --data "
              "labels=idx:test-labels.gz --checkpoint run");
  return {app, [arguments, &console] { return runEval(*arguments, console); }};
}

Command addInfer(CLI::App &parent, Console &console) {
  auto arguments = std::make_shared<InferArguments>();
  CLI::App *app = parent.add_subcommand("infer", "Write the model's outputs as .npy");
  addRunOptions(app, arguments->run,
                "folder of checkpoints (or one file) with the trained state");
  app->get_option("--data")->required(false); // a plan may have no inputs left
  app->add_option("-o,--out", arguments->out, "OUT.npy (several outputs: OUT-NAME.npy)")
      ->required();
  addTaskOption(app, arguments->task, "task whose mask is used");
  app->footer("Example: sluice infer model.plan --data images=npy:x.npy --checkpoint run "
              "-o y.npy");
  return {app, [arguments, &console] { return runInfer(*arguments, console); }};
}

} // namespace sluice::cli
