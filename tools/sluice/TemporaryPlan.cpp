#include "tools/sluice/TemporaryPlan.h"

#include "codegen/Compile.h"
#include "frontend/DeviceReader.h"
#include "frontend/OnnxImporter.h"
#include "frontend/SpecReader.h"
#include "runtime/PlanFile.h"

#include "mlir/IR/MLIRContext.h"

#include <filesystem>
#include <fstream>

namespace sluice::cli {
namespace {

std::string joined(const std::vector<std::string> &lines) {
  std::string text;
  for (const std::string &line : lines)
    text += (text.empty() ? "" : "\n") + line;
  return text;
}

/// The shapes with another number of samples, of inputs whose batch the model leaves
/// open; false where there is none.
bool setSamples(const std::vector<ImportedTensor> &inputs, int64_t samples,
                ImportOptions &options) {
  std::string symbol;
  for (const ImportedTensor &input : inputs)
    if (!input.symbols.empty() && !input.symbols[0].empty()) {
      symbol = input.symbols[0];
      break;
    }
  if (symbol.empty())
    return false;
  options.dimensions.clear();
  for (const ImportedTensor &input : inputs) {
    std::vector<int64_t> shape = input.shape;
    for (size_t d = 0; d < shape.size() && d < input.symbols.size(); ++d)
      if (input.symbols[d] == symbol)
        shape[d] = samples;
    options.shapes[input.name] = shape;
  }
  return true;
}

/// The model in all shapes of the spec.
class ShapeImports {
public:
  ShapeImports(const std::string &model, const TrainingSpec &spec, int64_t samples)
      : model(model), spec(spec), samples(samples) {}

  Status run() {
    if (spec.buckets.empty())
      return add(nullptr);
    Status status;
    for (size_t i = 0; i < spec.buckets.size() && status.ok(); ++i)
      status = add(&spec.buckets[i]);
    return status;
  }

  std::vector<CompileBucket> buckets;
  ImportReport report;

private:
  Status add(const ShapeBucket *bucket) {
    ImportOptions options = ImportOptions::from(spec, bucket);
    report = {};
    auto module = importOnnx(context, model, options, report);
    if (mlir::failed(module))
      return Status::refused(joined(report.problems()));
    if (samples > 0 && setSamples(report.inputs, samples, options)) {
      // Shapes that differ in the batch alone are one.
      for (const ImportOptions &other : smaller)
        if (other.shapes == options.shapes)
          return Status::success();
      smaller.push_back(options);
      // A model may fix its batch in other ways than by its inputs.
      ImportReport other;
      auto single = importOnnx(context, model, options, other);
      if (mlir::succeeded(single))
        module = std::move(single), report = std::move(other);
    }
    buckets.push_back({bucket ? bucket->name : "", **module});
    modules.push_back(std::move(*module));
    return Status::success();
  }

  const std::string &model;
  const TrainingSpec &spec;
  int64_t samples;
  mlir::MLIRContext context;
  std::vector<mlir::OwningOpRef<mlir::ModuleOp>> modules;
  std::vector<ImportOptions> smaller;
};

Result<std::string> makeFolder() {
  std::error_code error;
  std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  std::string pattern = (parent / "sluice-XXXXXX").string();
  if (error || !mkdtemp(pattern.data()))
    return Status::failed("no folder for a temporary plan can be made in '" +
                          parent.string() + "'");
  return pattern;
}

} // namespace

bool isPlanFile(const std::string &path) {
  char magic[sizeof planMagic] = {};
  std::ifstream file(path, std::ios::binary);
  file.read(magic, sizeof planMagic - 1);
  return file && std::string_view(magic) == planMagic;
}

void dropMemoryDecisions(TrainingSpec &spec) {
  spec.budgetBytes.reset();
  spec.recompute = "none";
  spec.recomputeRegions.clear();
  spec.ladder.clear();
  spec.keep.clear();
  spec.offload = "none";
}

Result<TrainingSpec> specOfPlan(const Plan &plan) {
  SpecResult read =
      readSpecText(std::string(viewOf(plan.raw().spec())), "the plan's spec");
  if (!read.spec)
    return Status::refused(joined(read.errors));
  TrainingSpec spec = *read.spec;
  spec.threads = plan.threads();
  spec.ranks = plan.ranks();
  if (spec.buckets.empty())
    for (const std::string &program : plan.programNames())
      for (const InputSpec &input : plan.inputs(program))
        if (program == "infer" || program == "eval")
          if (input.name != viewOf(plan.raw().labels_input()) &&
              input.name != spec.loss.inputLengths &&
              input.name != spec.loss.targetLengths)
            spec.shapes.try_emplace(input.name, input.shape);
  return spec;
}

Result<std::unique_ptr<TemporaryPlan>> TemporaryPlan::compile(const std::string &model,
                                                              const TrainingSpec &spec,
                                                              int64_t samples,
                                                              const Plan *of) {
  DeviceResult device = readDevice("cpu");
  if (!device.profile)
    return Status::refused(joined(device.errors));
  ShapeImports imports(model, spec, samples);
  Status status = imports.run();
  // Before what else is wrong with it: another model has other shapes too.
  const std::string &hash = imports.report.modelHash;
  if (of && !hash.empty() && hash != viewOf(of->raw().model_hash()))
    return Status::refused("'" + model + "' is not the model of '" + of->path() +
                           "': their hashes differ, " + hash + " and " +
                           std::string(viewOf(of->raw().model_hash())));
  if (!status.ok())
    return status;
  auto folder = makeFolder();
  if (!folder)
    return folder.status();
  std::unique_ptr<TemporaryPlan> made(new TemporaryPlan);
  made->folder = *folder;
  made->planPath = *folder + "/probe.plan";
  CompileOptions options;
  options.spec = spec;
  options.device = *device.profile;
  options.outPath = made->planPath;
  options.tensorNodes = imports.report.tensorNodes;
  CompileReport compiled;
  if (Status status = compileBuckets(imports.buckets, options, compiled); !status.ok())
    return status;
  return made;
}

TemporaryPlan::~TemporaryPlan() {
  std::error_code ignored;
  if (!folder.empty())
    std::filesystem::remove_all(folder, ignored);
}

} // namespace sluice::cli
