// sluice compile: model and spec to plan.

#include "codegen/Compile.h"
#include "frontend/DeviceReader.h"
#include "frontend/OnnxImporter.h"
#include "frontend/SpecReader.h"
#include "runtime/PlanReader.h"
#include "tools/sluice/Cli.h"
#include "tools/sluice/MemoryCertificate.h"

#include "mlir/IR/MLIRContext.h"

#include <chrono>

namespace sluice::cli {
namespace {

struct CompileArguments {
  std::string model, spec, memory, out, stopAfter = "code", device = "cpu";
  std::vector<std::string> sets, shapes;
  int threads = 0;
  std::optional<int> ranks;
  bool noFuse = false;
};

/// The spec of the file and the command line.
std::optional<TrainingSpec> specOf(const CompileArguments &arguments, Console &console,
                                   int &code) {
  SpecResult read = readSpec(arguments.spec, arguments.sets);
  if (!read.spec) {
    code = console.refuse(read.errors);
    return std::nullopt;
  }
  for (const std::string &translation : read.translations)
    console.message("note: " + translation);
  TrainingSpec spec = *read.spec;
  std::optional<std::string> problem =
      parseShapes(arguments.shapes, spec.shapes, spec.dimensions);
  for (ShapeBucket &bucket : spec.buckets)
    parseShapes(arguments.shapes, bucket.shapes, bucket.dimensions);
  if (!arguments.memory.empty()) {
    spec.budgetBytes = parseSize(arguments.memory);
    if (!spec.budgetBytes)
      problem =
          "--memory '" + arguments.memory + "': expected bytes or a size such as 512MiB";
  }
  if (arguments.threads > 0)
    spec.threads = arguments.threads;
  if (arguments.ranks)
    spec.ranks = *arguments.ranks;
  if (spec.ranks < 1 || spec.ranks > 4096)
    problem = "--ranks " + std::to_string(spec.ranks) + ": expected 1 to 4096";
  if (spec.ranks > 1 && spec.asRanks > 1)
    problem = "--ranks " + std::to_string(spec.ranks) +
              ": 'accumulate.as_ranks' is what one rank does in place of many; leave one "
              "of them out";
  if (problem) {
    code = console.fail(Status::usage(*problem));
    return std::nullopt;
  }
  return spec;
}

/// The profile, if plans for its device can be made.
std::optional<DeviceProfile> deviceOf(const CompileArguments &arguments, Console &console,
                                      int &code) {
  DeviceResult read = readDevice(arguments.device);
  if (!read.profile)
    code = console.refuse(read.errors);
  else if (read.profile->target != "cpu")
    code = console.fail(Status::refused(
        "--device " + arguments.device +
        ": plans for GPUs are not yet supported, only for 'cpu'; 'sluice fit --device " +
        arguments.device + "' says what will fit there"));
  else
    return read.profile;
  return std::nullopt;
}

std::string microseconds(double us) {
  char text[32];
  std::snprintf(text, sizeof text, us < 1e4 ? "%.0f us" : "%.1f ms",
                us < 1e4 ? us : us / 1e3);
  return text;
}

Json rungJson(const VariantReport &variant) {
  return {{"name", variant.name},
          {"variant", variant.rung},
          {"bucket", variant.bucket},
          {"memory_fraction", variant.memoryFraction},
          {"budget_bytes", variant.budgetBytes ? Json(*variant.budgetBytes) : Json()},
          {"arena_bytes", variant.arenaBytes},
          {"step_bytes", variant.stepBytes},
          {"step_us", variant.stepUs},
          {"step_us_bound", variant.stepUsBound},
          {"gap", variant.gap}};
}

Json variantJson(const VariantReport &variant) {
  Json programs = Json::object();
  for (auto &[entry, bytes] : variant.programs)
    programs[entry] = {{"step_bytes", bytes}};
  return {{"name", variant.name},
          {"batch", variant.batch},
          {"arena_bytes", variant.arenaBytes},
          {"step_bytes", variant.stepBytes},
          {"step_us", variant.stepUs},
          {"step_us_bound", variant.stepUsBound},
          {"gap", variant.gap},
          {"programs", programs}};
}

void fillJson(const CompileReport &report, Json &out) {
  out["arena_bytes"] = report.arenaBytes;
  out["arena"] = Json::object();
  for (auto &[category, bytes] : report.arena)
    out["arena"][category] = bytes;
  out["state"] = Json::object();
  for (auto &[role, bytes] : report.state)
    out["state"][role] = bytes;
  out["state_bytes"] = report.stateBytes;
  out["step_bytes"] = report.stepBytes;
  out["host_state_bytes"] = report.hostStateBytes;
  out["host_step_bytes"] = report.hostStepBytes;
  out["unconstrained_arena_bytes"] = report.unconstrainedArenaBytes;
  out["budget_bytes"] = report.budgetBytes ? Json(*report.budgetBytes) : Json();
  out["step_us"] = report.stepUs;
  out["step_us_bound"] = report.stepUsBound;
  out["gap"] = report.gap;
  out["kernels"] = report.kernels;
  out["launches"] = report.launches;
  out["compile_s"] = report.compileSeconds;
  out["warnings"] = report.warnings;
  out["notes"] = report.notes;
  out["buckets"] = Json::array();
  out["variants"] = Json::array();
  for (const VariantReport &variant : report.variants) {
    if (variant.rung == 0)
      out["buckets"].push_back(variantJson(variant));
    out["variants"].push_back(rungJson(variant));
  }
}

void printTable(const CompileReport &report, const std::string &path,
                const Console &console) {
  std::vector<std::vector<std::string>> rows;
  for (auto &[category, bytes] : report.arena)
    if (bytes > 0 && category != "host")
      rows.push_back({category, sizeText(static_cast<uint64_t>(bytes)),
                      std::to_string(bytes) + " B"});
  rows.push_back({"total (exact peak)",
                  sizeText(static_cast<uint64_t>(report.arenaBytes)),
                  std::to_string(report.arenaBytes) + " B"});
  if (int64_t host = report.hostStateBytes + report.hostStepBytes; host > 0)
    rows.push_back({"in the host's memory", sizeText(static_cast<uint64_t>(host)),
                    std::to_string(host) + " B"});
  console.line("memory at the peak of a step");
  console.line(tableText(rows));
  rows.clear();
  for (const VariantReport &variant : report.variants)
    rows.push_back({variant.name, "batch " + std::to_string(variant.batch),
                    sizeText(static_cast<uint64_t>(variant.arenaBytes)),
                    std::to_string(variant.arenaBytes) + " B",
                    microseconds(variant.stepUs)});
  if (rows.size() > 1) {
    console.line("variants, memory at the peak and predicted step");
    console.line(tableText(rows));
  }
  console.line("predicted step " + microseconds(report.stepUs) + " in " +
               std::to_string(report.launches) + " launches of " +
               std::to_string(report.kernels) + " kernels");
  for (const std::string &note : report.notes)
    console.line("note: " + note);
  for (const std::string &warning : report.warnings)
    console.line("warning: " + warning);
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f", report.compileSeconds);
  console.line("wrote " + path + " in " + seconds + " s");
}

/// The model once for each element of `shapes`.
bool importAll(mlir::MLIRContext &context, const std::string &model,
               const TrainingSpec &spec,
               std::vector<mlir::OwningOpRef<mlir::ModuleOp>> &modules,
               ImportReport &report) {
  for (size_t i = 0; i < std::max<size_t>(1, spec.buckets.size()); ++i) {
    const ShapeBucket *bucket = spec.buckets.empty() ? nullptr : &spec.buckets[i];
    report = {};
    auto module = importOnnx(context, model, ImportOptions::from(spec, bucket), report);
    if (mlir::failed(module)) {
      if (bucket)
        report.errors.insert(report.errors.begin(),
                             "with the shapes '" + bucket->name + "':");
      return false;
    }
    modules.push_back(std::move(*module));
  }
  return true;
}

void printModule(const CompileBucket &bucket) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  if (!bucket.name.empty())
    stream << "// shapes " << bucket.name << "\n";
  mlir::OpPrintingFlags flags;
  flags.elideLargeElementsAttrs(16).elideLargeResourceString(16);
  mlir::ModuleOp(bucket.module).print(stream, flags);
  std::printf("%s\n", stream.str().c_str());
}

int runCompile(const CompileArguments &arguments, Console &console) {
  auto start = std::chrono::steady_clock::now();
  int code = 0;
  std::optional<TrainingSpec> spec = specOf(arguments, console, code);
  if (!spec)
    return code;
  CompileOptions options;
  auto stage = compileStageNamed(arguments.stopAfter);
  if (!stage)
    return console.fail(
        Status::usage("--stop-after '" + arguments.stopAfter +
                      "': expected model, train, regions, decide, plan or code"));
  options.stopAfter = *stage;
  options.fuse = !arguments.noFuse;
  options.spec = *spec;
  options.outPath = arguments.out;
  std::optional<DeviceProfile> device = deviceOf(arguments, console, code);
  if (!device)
    return code;
  options.device = *device;
  if (*stage == CompileStage::Code && arguments.out.empty())
    return console.fail(Status::usage("say where the plan goes: -o OUT.plan"));

  mlir::MLIRContext context;
  ImportReport imported;
  std::vector<mlir::OwningOpRef<mlir::ModuleOp>> modules;
  if (!importAll(context, arguments.model, *spec, modules, imported))
    return console.refuse(imported.problems());
  std::vector<CompileBucket> buckets;
  for (size_t i = 0; i < modules.size(); ++i)
    buckets.push_back({spec->buckets.empty() ? "" : spec->buckets[i].name, *modules[i]});
  options.tensorNodes = imported.tensorNodes;
  CompileReport report;
  if (Status status = compileBuckets(buckets, options, report); !status.ok())
    return console.fail(status);
  report.notes.insert(report.notes.begin(), imported.notes.begin(), imported.notes.end());
  report.compileSeconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (*stage != CompileStage::Code) {
    for (const CompileBucket &bucket : buckets)
      printModule(bucket);
    return 0;
  }
  fillJson(report, console.result);
  if (auto plan = PlanReader::readFile(arguments.out))
    console.result["entries"] = certificates(**plan, (*plan)->variant(0));
  printTable(report, arguments.out, console);
  return console.finish();
}

} // namespace

Command addCompile(CLI::App &parent, Console &console) {
  auto arguments = std::make_shared<CompileArguments>();
  CLI::App *app =
      parent.add_subcommand("compile", "Compile a model and a training spec to a plan");
  app->add_option("model", arguments->model, "ONNX file")->required();
  app->add_option("--spec", arguments->spec,
                  "training spec (YAML); docs/spec.md lists the keys");
  app->add_option("--set", arguments->sets,
                  "KEY=VALUE over the spec, such as optimizer.lr=1e-4");
  app->add_option("--shape", arguments->shapes, "INPUT=4x18x1024, or DIMENSION=32");
  app->add_option("--memory", arguments->memory,
                  "budget, such as 512MiB: refused if the plan needs more");
  app->add_option("--threads", arguments->threads,
                  "workers; any number gives the same bits");
  app->add_option("--ranks", arguments->ranks,
                  "ranks that share an update (parallel.data); default 1");
  app->add_option("--device", arguments->device,
                  "profile that predicts times: cpu, or a file of sluice calibrate");
  app->add_option("--stop-after", arguments->stopAfter,
                  "print the IR after model, train, regions, decide or plan");
  app->add_flag("--no-fuse", arguments->noFuse,
                "one operation a kernel: slower, the same bits");
  app->add_option("-o,--out", arguments->out,
                  "OUT.plan; OUT.safetensors, the initial state, is written beside it");
  app->footer("Example: sluice compile model.onnx --spec train.yaml --set "
              "optimizer.lr=1e-4 -o model.plan");
  return {app, [arguments, &console] { return runCompile(*arguments, console); }};
}

} // namespace sluice::cli
