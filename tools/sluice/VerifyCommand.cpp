// sluice verify --precision: what a plan's precision costs on the user's own data, beside
// the f32 plan of the same spec.

#include "runtime/Checkpoint.h"
#include "runtime/Trainer.h"
#include "runtime/probe/LossDifference.h"
#include "tools/sluice/GuardFile.h"
#include "tools/sluice/RunOptions.h"
#include "tools/sluice/TemporaryPlan.h"
#include "tools/sluice/TrainingDifference.h"

namespace sluice::cli {
namespace {

struct VerifyArguments {
  RunOptions run;
  std::string model, against;
  int64_t steps = 100, seeds = 3;
  bool precision = false;
};

/// The same training in f32; memory decisions do not change numbers and are left out.
TrainingSpec singleSpec(TrainingSpec spec) {
  spec.entries = {"step"};
  spec.precision = {};
  spec.lossScale = {};
  dropMemoryDecisions(spec);
  return spec;
}

class PrecisionCheck {
public:
  PrecisionCheck(const VerifyArguments &arguments, Console &console)
      : arguments(arguments), console(console) {}

  Status run() {
    Status status = checkArguments();
    if (status.ok())
      status = openPlans();
    for (int64_t seed = 0; status.ok() && seed < arguments.seeds; ++seed)
      status = addRun(static_cast<uint64_t>(seed));
    if (!status.ok())
      return status;
    Json figures = figuresOf(compareLosses(runs));
    if (status = writeGuard(*plan, figures); !status.ok())
      return status;
    console.result = figures;
    console.result["out"] = guardPath(plan->path());
    console.line(guardText(figures));
    console.line("wrote " + guardPath(plan->path()));
    return status;
  }

private:
  Status checkArguments() const {
    if (!arguments.precision)
      return Status::usage("say what to verify: --precision");
    if (arguments.steps < 8 || arguments.seeds < 1 || arguments.seeds > 100)
      return Status::usage("--steps " + std::to_string(arguments.steps) + ", --seeds " +
                           std::to_string(arguments.seeds) +
                           ": expected at least 8 steps, and 1 to 100 seeds");
    if (arguments.model.empty() == arguments.against.empty())
      return Status::usage("name the model (--model MODEL.onnx), of which the f32 plan "
                           "is compiled, or that plan (--against F32.plan)");
    if (!arguments.run.checkpoint.empty() && arguments.seeds > 1)
      return Status::usage("a checkpoint goes on with its own seed: give --seeds 1");
    return Status::success();
  }

  Status openPlans() {
    auto read = PlanReader::readFile(arguments.run.plan);
    if (!read)
      return read.status();
    plan = *read;
    if (plan->ranks() > 1)
      return Status::refused("the plan is for " + std::to_string(plan->ranks()) +
                             " ranks, verify runs one; compile with 'accumulate: {count: "
                             "N, as_ranks: N}'");
    referencePath = arguments.against;
    if (referencePath.empty()) {
      auto spec = specOfPlan(*plan);
      if (!spec)
        return spec.status();
      auto made =
          TemporaryPlan::compile(arguments.model, singleSpec(*spec), 0, plan.get());
      if (!made)
        return made.status();
      temporary = std::move(*made);
      referencePath = temporary->path();
    }
    auto other = PlanReader::readFile(referencePath);
    return other ? checkReference(**other) : other.status();
  }

  Status checkReference(const Plan &other) const {
    std::string name = arguments.model.empty() ? arguments.against : arguments.model;
    if (viewOf(other.raw().model_hash()) != viewOf(plan->raw().model_hash()))
      return Status::refused("'" + name + "' is not the model of '" + arguments.run.plan +
                             "': their hashes differ");
    for (uint32_t i = 0; i < sizeOf(other.raw().state()); ++i) {
      const fbs::StateTensor &tensor = *other.raw().state()->Get(i);
      auto type = static_cast<DType>(tensor.dtype());
      if (tensor.role() == fbs::Role::parameter && tensor.trainable() &&
          type != DType::f32)
        return Status::refused("'" + name + "' stores '" +
                               std::string(viewOf(tensor.name())) + "' in " +
                               std::string(dtypeName(type)) + ", expected an f32 plan");
    }
    if (other.batch() != plan->batch() || other.accumulate() != plan->accumulate())
      return Status::refused(
          "'" + name + "' takes batches of " + std::to_string(other.batch()) + " x " +
          std::to_string(other.accumulate()) + ", the plan of " +
          std::to_string(plan->batch()) + " x " + std::to_string(plan->accumulate()));
    return checkTraining(other, name);
  }

  /// What is measured is formats: all else is to be the same.
  Status checkTraining(const Plan &other, const std::string &name) const {
    if (arguments.against.empty())
      return Status::success();
    auto ours = specOfPlan(*plan), theirs = specOfPlan(other);
    if (!ours || !theirs)
      return ours ? theirs.status() : ours.status();
    if (!isSingle(theirs->precision))
      return Status::refused("the spec of '" + name +
                             "' has narrow formats ('precision'), expected an f32 plan");
    if (std::string key = trainingDifference(*ours, *theirs); !key.empty())
      return Status::refused("'" + name + "' has another '" + key + "' than '" +
                             arguments.run.plan +
                             "', expected specs that differ in 'precision' alone");
    return Status::success();
  }

  Status addRun(uint64_t seed) {
    auto ours = lossesOf(arguments.run.plan, seed);
    if (!ours)
      return ours.status();
    auto reference = lossesOf(referencePath, seed);
    if (!reference)
      return reference.status();
    if (ours->size() != reference->size() || ours->size() < 8)
      return Status::refused("the plans have run " + std::to_string(ours->size()) +
                             " and " + std::to_string(reference->size()) +
                             " updates, expected the same, and at least 8");
    runs.push_back({std::move(*ours), std::move(*reference)});
    console.message("seed " + std::to_string(seed + 1) + " of " +
                    std::to_string(arguments.seeds) + ": loss " +
                    std::to_string(runs.back().ours.back()) + ", f32 " +
                    std::to_string(runs.back().reference.back()));
    return Status::success();
  }

  Result<std::vector<double>> lossesOf(const std::string &path, uint64_t seed) {
    RunOptions run = arguments.run;
    run.plan = path;
    run.seed = plan->raw().seed() + seed;
    auto session = openSession(run, console);
    if (!session)
      return session.status();
    if (!run.checkpoint.empty()) {
      auto loaded = loadCheckpoint(**session, run.checkpoint);
      if (!loaded)
        return loaded.status();
    }
    const char *program = plan->trainingProgram();
    auto source = openSource(**session, program, run.data, run.buckets, !run.noShuffle);
    if (!source)
      return source.status();
    TrainOptions options;
    options.steps = (*session)->updates() + arguments.steps;
    auto summary = train(**session, **source, nullptr, options);
    if (!summary) {
      Status status = summary.status();
      status.message =
          (path == referencePath ? "the f32 plan: " : "the plan: ") + status.message;
      return status;
    }
    return std::move(summary->losses);
  }

  Json figuresOf(const LossDifference &found) const {
    return {{"difference", found.mean},
            {"stderr", found.standardError},
            {"half_interval", found.halfInterval},
            {"low", found.mean - found.halfInterval},
            {"high", found.mean + found.halfInterval},
            {"seen", found.isSeen()},
            {"plan_loss", found.ours},
            {"f32_loss", found.reference},
            {"f32_seed_spread", found.referenceSpread},
            {"noise_over", found.isOverRuns ? "seeds" : "windows"},
            {"windows", found.windows},
            {"steps", arguments.steps},
            {"seeds", arguments.seeds}};
  }

  const VerifyArguments &arguments;
  Console &console;
  PlanPtr plan;
  std::unique_ptr<TemporaryPlan> temporary;
  std::string referencePath;
  std::vector<PairedRun> runs;
};

int runVerify(const VerifyArguments &arguments, Console &console) {
  Status status = PrecisionCheck(arguments, console).run();
  return status.ok() ? console.finish() : console.fail(status);
}

} // namespace

Command addVerify(CLI::App &parent, Console &console) {
  auto arguments = std::make_shared<VerifyArguments>();
  VerifyArguments &a = *arguments;
  CLI::App *app = parent.add_subcommand(
      "verify", "Measure what a plan's precision costs in loss, beside f32");
  addRunOptions(app, a.run, "folder of checkpoints (or one file) to go on from");
  app->add_flag("--precision", a.precision,
                "train with the plan and with the f32 plan of its spec, on the same "
                "batches; OUT.precision.json beside the plan has the figures");
  app->add_option("--model", a.model, "the plan's ONNX file: the f32 plan is made of it");
  app->add_option("--against", a.against, "an f32 plan of the same model and batch");
  app->add_option("--steps", a.steps, "updates of each run; default 100");
  app->add_option("--seeds", a.seeds,
                  "runs, each in another order of samples; default 3");
  app->footer("Example: sluice verify model.plan --precision --model model.onnx --data "
              "images=npy:x.npy --data labels=npy:y.npy --steps 200");
  return {app, [arguments, &console] { return runVerify(*arguments, console); }};
}

} // namespace sluice::cli
