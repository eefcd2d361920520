// sluice fit: will it fit, how large can it be, and what does less memory cost.

#include "tools/sluice/FitModel.h"
#include "tools/sluice/FitPicture.h"
#include "tools/sluice/FitReport.h"
#include "tools/sluice/FitTable.h"

#include <algorithm>
#include <chrono>

namespace sluice::cli {
namespace {

class FitRun {
public:
  FitRun(const FitArguments &arguments, Console &console)
      : arguments(arguments), console(console) {}

  int run() {
    auto start = std::chrono::steady_clock::now();
    FitQuestion question;
    FitChoice choice{arguments.device, arguments.ranks, arguments.zero};
    if (int code = readQuestion(arguments, choice, console, question); code != 0)
      return code;
    const TrainingSpec &spec = question.spec;
    answer.device = question.device;
    answer.budget = question.budgets.front();
    answer.ranks = spec.ranks;
    answer.ladder = spec.ladder;
    FitModel model(arguments.model, spec, answer.device, arguments.points);
    if (Status status = plan(model, spec); !status.ok())
      return console.fail(status);
    if (answer.budget && !arguments.noSearch)
      search(model);
    std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    answer.seconds = taken.count();
    addNotes(model);
    fillFitJson(answer, console.result);
    if (!arguments.svg.empty()) {
      const MemoryCurve &curve = answer.curves[answer.largest()];
      std::string picture =
          fitSvg(curve, answer.budget.value_or(0), arguments.model, answer.device.name);
      if (Status status = writeWholeFile(arguments.svg, picture); !status.ok())
        return console.fail(status);
    }
    printFit(answer, console);
    console.finish();
    return answer.fits().value_or(true) ? 0 : static_cast<int>(StatusCode::doesNotFit);
  }

private:
  /// Curves of the shapes; and the plan of all of them and the rungs of the ladder.
  Status plan(FitModel &model, const TrainingSpec &spec) {
    if (Status status = model.findCurves(answer.curves); !status.ok())
      return status;
    bool hasVariants = answer.hasLadder() || (spec.buckets.size() > 1 && answer.budget);
    if (!hasVariants)
      return Status::success();
    return model.findVariants(answer.budget, answer.variants);
  }

  /// Within what the smallest rung has.
  void search(FitModel &model) {
    answer.sequenceName = model.sequenceName(arguments.sequence);
    auto budget = static_cast<int64_t>(double(*answer.budget) * answer.leastShare());
    model.askWithin(budget);
    for (size_t shape = 0; shape < answer.curves.size(); ++shape) {
      const MemoryCurve &curve = answer.curves[shape];
      FitSizes &sizes = answer.sizes.emplace_back();
      auto find = [&](int64_t start, auto bytesOf, std::optional<LargestSize> &found,
                      std::string &note) {
        constexpr int64_t most = 1 << 20;
        LargestSize largest;
        int64_t fixed = std::min(curve.stateBytes, curve.smallestBytes());
        SizeSearch search{start, curve.smallestBytes(), fixed, most, budget};
        Status status = findLargest(search, bytesOf, largest);
        note = status.ok() ? largest.limit : status.message;
        if (status.ok())
          found = largest;
      };
      if (model.batch(shape) > 0)
        find(
            model.batch(shape),
            [&](int64_t size, int64_t &bytes) {
              return model.bytesAtBatch(shape, size, bytes);
            },
            sizes.batch, sizes.batchNote);
      if (answer.sequenceName.empty())
        sizes.sequenceNote =
            arguments.sequence.empty()
                ? "no single dimension besides the batch is symbolic"
                : "no input has a dimension '" + arguments.sequence + "'";
      else
        find(
            model.sequence(shape, answer.sequenceName),
            [&](int64_t size, int64_t &bytes) {
              return model.bytesAtSequence(shape, answer.sequenceName, size, bytes);
            },
            sizes.sequence, sizes.sequenceNote);
    }
  }

  void addNotes(const FitModel &model) {
    std::vector<std::string> &lines = answer.notes;
    auto add = [&](const std::string &line) {
      if (std::find(lines.begin(), lines.end(), line) == lines.end())
        lines.push_back(line);
    };
    lines = model.notes();
    const DeviceProfile &device = answer.device;
    if (device.target != "cpu")
      add("planned with the kernels of 'cpu': workspaces of " + device.name +
          "'s kernels may differ, and its times are not measured yet");
    if (answer.ranks > 1)
      add(std::to_string(answer.ranks) +
          " ranks: bytes are those of one; predicted steps send sums over " +
          linksText(answer.ranks, device));
    if (answer.hasLadder())
      add(answer.budget
              ? "the rungs of 'memory.ladder' are shares of the budget, and the largest "
                "sizes are those of the smallest rung"
              : "the rungs of 'memory.ladder' are shares of what a plan that keeps "
                "everything needs, since no budget is known");
    for (const FitSizes &sizes : answer.sizes) {
      if (!sizes.batchNote.empty())
        add("no larger batch: " + sizes.batchNote);
      if (!sizes.sequenceNote.empty())
        add("no longer sequence: " + sizes.sequenceNote);
    }
  }

  const FitArguments &arguments;
  Console &console;
  FitAnswer answer;
};

} // namespace

Command addFit(CLI::App &parent, Console &console) {
  auto isGiven = [](const std::string &text) {
    return std::string(text.empty() ? "expected a value, not ''" : "");
  };
  auto arguments = std::make_shared<FitArguments>();
  CLI::App *app = parent.add_subcommand(
      "fit", "Say whether a training step fits in memory, and what less memory costs");
  app->add_option("model", arguments->model, "ONNX file; its weights may be absent")
      ->required();
  app->add_option("--spec", arguments->spec, "training spec (YAML)");
  app->add_option("--set", arguments->sets, "KEY=VALUE over the spec");
  app->add_option("--shape", arguments->shapes, "INPUT=4x18x1024, or DIMENSION=32");
  app->add_option("--memory", arguments->memory,
                  "budget of the arena, such as 8GiB; default: 'memory.budget' of the "
                  "spec, else the device's memory less what else lies there; a list "
                  "with commas, here and below: a table of all combinations");
  app->add_option("--device", arguments->device,
                  "cpu, a100-40, a100-80, v100-32, rtx3090, h100, h200, b200, or a file");
  app->add_option("--sequence", arguments->sequence,
                  "the dimension whose longest size is wanted; default: the only "
                  "symbolic one besides the batch");
  app->add_option("--threads", arguments->threads, "workers");
  app->add_option("--ranks", arguments->ranks,
                  "ranks that share an update (parallel.data): bytes are those of one, "
                  "times those of a step with its sums over the profile's links")
      ->check(isGiven);
  app->add_option("--zero", arguments->zero,
                  "what ranks share out among them (parallel.zero)")
      ->check(isGiven);
  app->add_option("--points", arguments->points,
                  "plans between the smallest and the fastest")
      ->check(CLI::Range(0, 1000));
  app->add_flag("--no-search", arguments->noSearch,
                "no largest batch and longest sequence");
  app->add_option("--svg", arguments->svg, "picture of budget against predicted time");
  app->footer("Example: sluice fit model.onnx --spec train.yaml --device a100-80");
  return {app, [arguments, &console] {
            return wantsTable(*arguments) ? runFitTable(*arguments, console)
                                          : FitRun(*arguments, console).run();
          }};
}

} // namespace sluice::cli
