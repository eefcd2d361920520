// sluice probe: how much the loss depends on each part of each parameter, and what each
// stored format is expected to cost there.

#include "runtime/probe/Probe.h"
#include "runtime/probe/ProbeFile.h"
#include "tools/sluice/ProbeReport.h"
#include "tools/sluice/ProbeSession.h"
#include "tools/sluice/UpdateGroupNames.h"

#include <cmath>
#include <optional>

namespace sluice::cli {
namespace {

struct ProbeArguments {
  ProbeSubject subject;
  std::string kind = "fisher", block = "128x128", labels = "true", out;
  int64_t samples = 256, draws = 32;
  std::optional<double> eps;
  uint64_t seed = 0;
};

class ProbeRun {
public:
  ProbeRun(const ProbeArguments &arguments, Console &console)
      : arguments(arguments), console(console), opener(arguments.subject) {}

  Status run() {
    Status status = opener.open(console);
    if (status.ok())
      status = estimate();
    if (status.ok())
      status = writeProbe(arguments.out, found.importance, metadata());
    if (status.ok())
      report();
    return status;
  }

private:
  Session &session() const { return opener.session(); }
  bool isMoments() const { return arguments.kind == "moments"; }

  ProbeOptions options() const {
    ProbeOptions options;
    options.samples = arguments.samples;
    options.blocks =
        arguments.block == "tensor" ? ImportanceBlocks::tensor : ImportanceBlocks::tiles;
    options.labels = arguments.labels == "sampled" ? ProbeLabels::sampled
                     : arguments.labels == "all"   ? ProbeLabels::all
                                                   : ProbeLabels::given;
    options.draws = arguments.draws;
    if (arguments.eps)
      options.eps = *arguments.eps;
    options.seed = arguments.seed;
    return options;
  }

  Status estimate() {
    auto result =
        isMoments() ? probeMoments(session(), options().blocks) : estimateOnData();
    if (!result)
      return result.status();
    found = std::move(*result);
    return Status::success();
  }

  Result<ProbeResult> estimateOnData() {
    if (arguments.eps && !(*arguments.eps > 0 && std::isfinite(*arguments.eps)))
      return Status::usage("--eps " + Json(*arguments.eps).dump() +
                           ": expected a distance above 0");
    if (arguments.subject.run.data.empty())
      return Status::usage("--data is required for --kind " + arguments.kind);
    auto source =
        openSource(session(), "probe", arguments.subject.run.data,
                   arguments.subject.run.buckets, !arguments.subject.run.noShuffle);
    if (!source)
      return source.status();
    if (arguments.kind == "hutchinson")
      return probeHutchinson(session(), **source, options());
    if (session().plan().batch() > 1)
      console.message("note: one sample at a time goes through programs for " +
                      std::to_string(session().plan().batch()) +
                      "; --model compiles one for single samples, where the model's "
                      "batch is open");
    ProbeOptions grouped = options();
    grouped.groups = updateGroupList(session().plan().raw());
    return probeFisher(session(), **source, grouped);
  }

  Metadata metadata() const {
    const fbs::Plan &plan = session().plan().raw();
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
    if (found.coupling)
      reportCoupling(*found.coupling, console);
    console.line("wrote " + arguments.out);
  }

  const ProbeArguments &arguments;
  Console &console;
  ProbeSession opener;
  ProbeResult found;
};

int runProbe(ProbeArguments &arguments, Console &console) {
  arguments.subject.readsMoments = arguments.kind == "moments";
  arguments.subject.samples = arguments.kind == "fisher" ? 1 : 0;
  Status status = ProbeRun(arguments, console).run();
  return status.ok() ? console.finish() : console.fail(status);
}

} // namespace

Command addProbe(CLI::App &parent, Console &console) {
  auto arguments = std::make_shared<ProbeArguments>();
  ProbeArguments &a = *arguments;
  CLI::App *app = parent.add_subcommand(
      "probe", "Estimate how much the loss depends on each parameter's parts");
  addRunOptions(app, a.subject.run,
                "folder of checkpoints (or one file) with the trained state");
  app->get_option("plan")->description("plan file, or a model (ONNX) with --spec");
  app->get_option("--data")->required(false); // moments need none
  app->add_option("--model", a.subject.model,
                  "of a plan without the program 'probe': its ONNX file");
  app->add_option("--spec", a.subject.spec, "of a model: the training spec (YAML)");
  app->add_option("--set", a.subject.sets, "KEY=VALUE over the spec");
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
