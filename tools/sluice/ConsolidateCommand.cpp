// sluice consolidate: the end of a task, by hand.

#include "runtime/Checkpoint.h"
#include "runtime/continual/Consolidation.h"
#include "tools/sluice/RunOptions.h"
#include "tools/sluice/StreamRecord.h"

namespace sluice::cli {
namespace {

struct ConsolidateArguments {
  RunOptions run;
  int64_t samples = 0;
};

Result<ConsolidateReport> consolidateOn(Session &session,
                                        const ConsolidateArguments &arguments) {
  bool hasFisher = session.plan().program("fisher");
  if (!hasFisher) // refused, or si
    return consolidate(session, nullptr);
  if (arguments.run.data.empty())
    return Status::usage("the Fisher is that of data: --data is missing");
  auto source =
      openSource(session, "fisher", arguments.run.data, arguments.run.buckets, false);
  if (!source)
    return source.status();
  ConsolidateOptions options;
  if (arguments.samples > 0)
    options.samples = arguments.samples;
  return consolidate(session, **source, options);
}

int runConsolidate(const ConsolidateArguments &arguments, Console &console) {
  if (arguments.run.checkpoint.empty())
    return console.fail(Status::usage(
        "--checkpoint DIR is missing: the state that a task has ended with"));
  if (hasStream(arguments.run.checkpoint))
    return console.fail(Status::refused(
        "--checkpoint '" + arguments.run.checkpoint +
        "' is the folder of a sequence of tasks, each of which 'train --tasks' has "
        "consolidated at its end; give another folder"));
  auto session = openSession(arguments.run, console);
  if (!session)
    return console.fail(session.status());
  auto loaded = loadCheckpoint(**session, arguments.run.checkpoint);
  if (!loaded)
    return console.fail(loaded.status());
  for (const std::string &note : loaded->notes)
    console.message("note: " + note);
  auto penalty = penaltyValue(**session); // of the task that ends
  if (!penalty)
    return console.fail(penalty.status());
  auto report = consolidateOn(**session, arguments);
  if (!report)
    return console.fail(report.status());
  auto path = saveCheckpoint(**session, arguments.run.checkpoint, {});
  if (!path)
    return console.fail(path.status());
  console.result = {{"tasks", report->tasks},
                    {"samples", report->samples},
                    {"penalty_before", *penalty},
                    {"importance_mean", report->importanceMean},
                    {"importance_max", report->importanceMost},
                    {"importance_added_mean", report->importanceAdded},
                    {"checkpoint", *path}};
  char text[200];
  std::snprintf(
      text, sizeof text,
      "consolidated task %lld: %lld samples, importance %.4g (mean), %.4g (max)",
      static_cast<long long>(report->tasks), static_cast<long long>(report->samples),
      report->importanceMean, report->importanceMost);
  console.line(text);
  console.line("checkpoint: " + *path);
  return console.finish();
}

} // namespace

Command addConsolidate(CLI::App &parent, Console &console) {
  auto arguments = std::make_shared<ConsolidateArguments>();
  CLI::App *app = parent.add_subcommand(
      "consolidate", "End a task: anchors become the weights, with their importance");
  addRunOptions(app, arguments->run,
                "folder of checkpoints: the newest is read, and written again");
  app->get_option("--data")->required(false); // si needs none
  app->add_option("--samples", arguments->samples,
                  "of the data, for the Fisher; default: the plan's");
  app->footer("Example: sluice consolidate model.plan --data images=npy:x.npy --data "
              "labels=npy:y.npy --checkpoint run");
  return {app, [arguments, &console] { return runConsolidate(*arguments, console); }};
}

} // namespace sluice::cli
