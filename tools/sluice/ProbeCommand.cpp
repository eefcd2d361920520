// sluice probe: how much the loss depends on each part of each parameter, and what each
// stored format is expected to cost there.

#include "frontend/SpecReader.h"
#include "runtime/Checkpoint.h"
#include "runtime/CheckpointShards.h"
#include "runtime/probe/Probe.h"
#include "runtime/probe/ProbeFile.h"
#include "tools/sluice/ProbeReport.h"
#include "tools/sluice/RunOptions.h"
#include "tools/sluice/TemporaryPlan.h"

#include <cinttypes>

namespace sluice::cli {
namespace {

struct ProbeArguments {
  RunOptions run;
  std::string model, spec, kind = "fisher", block = "128x128", labels = "true", out;
  std::vector<std::string> sets;
  int64_t samples = 256, draws = 32;
  double eps = 0;
  uint64_t seed = 0;
};

/// Gradients of the loss in f32, of one rank and one micro-batch, whatever trains.
TrainingSpec probeSpec(TrainingSpec spec) {
  spec.entries = {"probe"};
  spec.accumulate = spec.asRanks = spec.ranks = 1;
  spec.precision = {};
  spec.lossScale = {};
  spec.clip = {};
  spec.budgetBytes.reset();
  spec.recompute = "none";
  spec.recomputeRegions.clear();
  spec.ladder.clear();
  spec.keep.clear();
  spec.offload = "none";
  spec.changes.clear();
  return spec;
}

/// The newest of a folder; the path itself where that is a file.
std::string checkpointFile(const std::string &folderOrFile) {
  std::vector<int64_t> steps = listCheckpoints(folderOrFile);
  if (steps.empty())
    return folderOrFile;
  char name[48];
  std::snprintf(name, sizeof name, "/step-%08" PRId64 ".safetensors", steps.front());
  return folderOrFile + name;
}

class ProbeRun {
public:
  ProbeRun(const ProbeArguments &arguments, Console &console)
      : arguments(arguments), console(console) {}

  Status run() {
    Status status = openPlan();
    if (status.ok())
      status = openState();
    if (status.ok())
      status = estimate();
    if (status.ok())
      status = writeProbe(arguments.out, found.importance, metadata());
    if (status.ok())
      report();
    return status;
  }

private:
  bool isMoments() const { return arguments.kind == "moments"; }

  /// The plan given where it can do it, else one made of the model for this.
  Status openPlan() {
    run_ = arguments.run;
    if (!isPlanFile(run_.plan))
      return compileModel();
    auto read = PlanReader::readFile(run_.plan);
    if (!read)
      return read.status();
    given = *read;
    if (isMoments())
      return Status::success();
    if (!arguments.model.empty())
      return compileBeside();
    if (given->program("probe"))
      return Status::success();
    return Status::refused(
        "the plan '" + run_.plan +
        "' has no program 'probe': name its model (--model MODEL.onnx), or compile with "
        "'entries: [step, eval, infer, probe]'");
  }

  Status compileModel() {
    if (isMoments())
      return Status::usage("--kind moments reads a plan's state, '" + run_.plan +
                           "' is no plan");
    SpecResult read = readSpec(arguments.spec, arguments.sets);
    if (!read.spec) {
      std::string text;
      for (const std::string &line : read.errors)
        text += (text.empty() ? "" : "\n") + line;
      return Status::refused(text);
    }
    return compile(run_.plan, *read.spec);
  }

  Status compileBeside() {
    auto spec = specOfPlan(*given);
    if (!spec)
      return spec.status();
    if (Status status = compile(arguments.model, *spec); !status.ok())
      return status;
    auto made = PlanReader::readFile(run_.plan);
    if (!made)
      return made.status();
    if (viewOf((*made)->raw().model_hash()) != viewOf(given->raw().model_hash()))
      return Status::refused("'" + arguments.model + "' is not the model of '" +
                             arguments.run.plan + "': their hashes are " +
                             std::string(viewOf((*made)->raw().model_hash())) + " and " +
                             std::string(viewOf(given->raw().model_hash())));
    // The weights that the plan starts from, where no others are named.
    if (run_.weights.empty() && run_.checkpoint.empty())
      run_.weights = given->weightsPath();
    return Status::success();
  }

  Status compile(const std::string &model, const TrainingSpec &spec) {
    int64_t samples = arguments.kind == "fisher" ? 1 : 0;
    auto made = TemporaryPlan::compile(model, probeSpec(spec), samples);
    if (!made)
      return made.status();
    temporary = std::move(*made);
    run_.plan = temporary->path();
    return Status::success();
  }

  Status openState() {
    auto opened = openSession(run_, console);
    if (!opened)
      return opened.status();
    session = std::move(*opened);
    if (run_.checkpoint.empty())
      return Status::success();
    if (temporary)
      return loadTrainedWeights();
    auto loaded = loadCheckpoint(*session, run_.checkpoint);
    if (!loaded)
      return loaded.status();
    for (const std::string &note : loaded->notes)
      console.message("note: " + note);
    return Status::success();
  }

  /// A plan made for this has no state but weights.
  Status loadTrainedWeights() {
    std::string path = checkpointFile(run_.checkpoint);
    auto file = openWithShards(path);
    if (!file)
      return file.status();
    auto hash = file->metadata().find("model_hash");
    std::string_view expected = viewOf(session->plan().raw().model_hash());
    if (hash != file->metadata().end() && hash->second != expected)
      return Status::refused("'" + path +
                             "' is a checkpoint of another model: its hash is " +
                             hash->second + ", the model's " + std::string(expected));
    return session->loadWeights(path);
  }

  ProbeOptions options() const {
    ProbeOptions options;
    options.samples = arguments.samples;
    options.blocks =
        arguments.block == "tensor" ? ImportanceBlocks::tensor : ImportanceBlocks::tiles;
    options.labels = arguments.labels == "sampled" ? ProbeLabels::sampled
                     : arguments.labels == "all"   ? ProbeLabels::all
                                                   : ProbeLabels::given;
    options.draws = arguments.draws;
    if (arguments.eps > 0)
      options.eps = arguments.eps;
    options.seed = arguments.seed;
    return options;
  }

  Status estimate() {
    auto result =
        isMoments() ? probeMoments(*session, options().blocks) : estimateOnData();
    if (!result)
      return result.status();
    found = std::move(*result);
    return Status::success();
  }

  Result<ProbeResult> estimateOnData() {
    if (run_.data.empty())
      return Status::usage("--data is required for --kind " + arguments.kind);
    auto source = openSource(*session, "probe", run_.data, run_.buckets, !run_.noShuffle);
    if (!source)
      return source.status();
    if (arguments.kind == "hutchinson")
      return probeHutchinson(*session, **source, options());
    if (session->plan().batch() > 1)
      console.message("note: one sample at a time goes through programs for " +
                      std::to_string(session->plan().batch()) +
                      "; --model compiles one for single samples, where the model's "
                      "batch is open");
    return probeFisher(*session, **source, options());
  }

  Metadata metadata() const {
    const fbs::Plan &plan = session->plan().raw();
    Metadata data = {{"kind", arguments.kind},
                     {"block", arguments.block},
                     {"model_hash", std::string(viewOf(plan.model_hash()))},
                     {"model_name", std::string(viewOf(plan.model_name()))}};
    if (isMoments()) {
      data["updates"] = std::to_string(found.updates);
      data["stderr"] = "none";
      return data;
    }
    data["samples"] = std::to_string(arguments.samples);
    data["seed"] = std::to_string(arguments.seed);
    data["windows"] = std::to_string(found.windows);
    data["loss"] = Json(found.lossSum / found.lossCount).dump();
    data["labels"] = arguments.kind == "fisher" ? arguments.labels : "true";
    if (arguments.kind == "hutchinson") {
      data["eps"] = Json(found.eps).dump();
      data["draws"] = std::to_string(arguments.draws);
    }
    return data;
  }

  std::string method() const {
    std::string samples = std::to_string(arguments.samples) + " samples";
    if (isMoments())
      return "the optimizer's second moment after " + std::to_string(found.updates) +
             " updates, with no error known";
    if (arguments.kind == "hutchinson")
      return "Hutchinson's diagonal of the loss of " + samples + ", " +
             std::to_string(arguments.draws) + " draws at a distance of " +
             Json(found.eps).dump() + "; intervals are those of the draws";
    std::string labels = arguments.labels == "sampled"
                             ? "labels drawn from the model's distribution"
                         : arguments.labels == "all" ? "all classes by their probability"
                                                     : "the data's labels";
    return "Fisher of " + samples + ", " + labels +
           ", each sample by itself; intervals from " + std::to_string(found.windows) +
           " windows of samples";
  }

  void report() {
    for (const auto &[key, value] : metadata())
      console.result[key] = value;
    console.result["method"] = method();
    console.result["out"] = arguments.out;
    console.result["parameters"] = probeRows(found.importance, !isMoments());
    console.line(method());
    console.line("importance: mean diagonal; formats: expected rise of the loss");
    console.line(probeTable(found.importance, !isMoments()));
    console.line("wrote " + arguments.out);
  }

  const ProbeArguments &arguments;
  Console &console;
  RunOptions run_; // of the plan that is run
  PlanPtr given;
  std::unique_ptr<TemporaryPlan> temporary;
  std::unique_ptr<Session> session;
  ProbeResult found;
};

int runProbe(const ProbeArguments &arguments, Console &console) {
  Status status = ProbeRun(arguments, console).run();
  return status.ok() ? console.finish() : console.fail(status);
}

} // namespace

Command addProbe(CLI::App &parent, Console &console) {
  auto arguments = std::make_shared<ProbeArguments>();
  ProbeArguments &a = *arguments;
  CLI::App *app = parent.add_subcommand(
      "probe", "Estimate how much the loss depends on each parameter's parts");
  addRunOptions(app, a.run, "folder of checkpoints (or one file) with the trained state");
  app->get_option("plan")->description("plan file, or a model (ONNX) with --spec");
  app->get_option("--data")->required(false); // moments need none
  app->add_option("--model", a.model,
                  "of a plan without the program 'probe': its ONNX file");
  app->add_option("--spec", a.spec, "of a model: the training spec (YAML)");
  app->add_option("--set", a.sets, "KEY=VALUE over the spec");
  app->add_option("--kind", a.kind,
                  "fisher (squared gradients, by sample), hutchinson (the Hessian's "
                  "diagonal, by differences of gradients) or moments (the optimizer's)")
      ->check(CLI::IsMember({"fisher", "hutchinson", "moments"}));
  app->add_option("--samples", a.samples, "of the data; default 256");
  app->add_option("--block", a.block,
                  "128x128: tiles of matrices, rows of tensors of higher rank; tensor: "
                  "each as a whole")
      ->check(CLI::IsMember({"128x128", "tensor"}));
  app->add_option("--labels", a.labels,
                  "of the Fisher: true (the data's), sampled (from the model's "
                  "distribution) or all (every class, weighted)")
      ->check(CLI::IsMember({"true", "sampled", "all"}));
  app->add_option("--draws", a.draws, "of hutchinson; default 32");
  app->add_option("--eps", a.eps,
                  "of hutchinson: distance of the differences; default 1% of the "
                  "weights' root mean square");
  app->add_option("--seed", a.seed, "of drawn labels and signs; default 0");
  app->add_option("-o,--out", a.out, "OUT.safetensors, for precision.policy")->required();
  app->footer("Example: sluice probe model.plan --model model.onnx --data "
              "images=npy:x.npy --data labels=npy:y.npy --checkpoint run --samples 512 "
              "-o probe.safetensors");
  return {app, [arguments, &console] { return runProbe(*arguments, console); }};
}

} // namespace sluice::cli
