#include "tools/sluice/FitModel.h"

#include "mlir/IR/MLIRContext.h"

namespace sluice::cli {

static bool isNamed(const ImportedTensor &input, size_t dimension,
                    const std::string &symbol) {
  return dimension < input.symbols.size() && input.symbols[dimension] == symbol;
}

FitModel::FitModel(std::string path, TrainingSpec spec, DeviceProfile device,
                   int64_t plans)
    : path(std::move(path)) {
  options.compile.spec = std::move(spec);
  options.compile.device = std::move(device);
  options.plans = plans;
  // No values are drawn, but patterns that match nothing are still reported.
  for (InitRule &rule : options.compile.spec.init)
    rule.from = "model";
}

Status FitModel::findCurves(std::vector<MemoryCurve> &found) {
  inputs.clear();
  return import(imports(), [&](llvm::ArrayRef<CompileBucket> buckets) {
    return findMemoryCurves(buckets, options, found);
  });
}

Status FitModel::findVariants(const std::optional<int64_t> &budget,
                              std::vector<VariantReport> &found) {
  CompileOptions compile = options.compile;
  compile.spec.budgetBytes = budget;
  compile.stopAfter = CompileStage::Plan;
  CompileReport report;
  Status status = import(imports(), [&](llvm::ArrayRef<CompileBucket> buckets) {
    return compileBuckets(buckets, compile, report);
  });
  found = std::move(report.variants);
  bool isMissed = status.code == StatusCode::doesNotFit && !found.empty();
  return isMissed ? Status::success() : status;
}

int64_t FitModel::batch(size_t shape) const {
  for (const ImportedTensor &input : inputs[shape])
    if (!input.shape.empty())
      return input.shape[0];
  return 0;
}

std::string FitModel::sequenceName(const std::string &asked) const {
  std::string found;
  for (const ImportedTensor &input : inputs.front())
    for (size_t i = 1; i < input.symbols.size(); ++i) {
      const std::string &symbol = input.symbols[i];
      if (symbol.empty() || (!asked.empty() && symbol != asked))
        continue;
      if (!found.empty() && found != symbol)
        return {};
      found = symbol;
    }
  return found;
}

int64_t FitModel::sequence(size_t shape, const std::string &name) const {
  for (const ImportedTensor &input : inputs[shape])
    for (size_t i = 1; i < input.symbols.size(); ++i)
      if (input.symbols[i] == name)
        return input.shape[i];
  return 0;
}

Status FitModel::bytesAtBatch(size_t shape, int64_t size, int64_t &bytes) {
  int64_t now = batch(shape);
  return bytesAt(
      shape,
      [now](const ImportedTensor &input, size_t dimension) {
        return dimension == 0 && input.shape[0] == now;
      },
      size, bytes);
}

Status FitModel::bytesAtSequence(size_t shape, const std::string &name, int64_t size,
                                 int64_t &bytes) {
  return bytesAt(
      shape,
      [&name](const ImportedTensor &input, size_t dimension) {
        return dimension > 0 && isNamed(input, dimension, name);
      },
      size, bytes);
}

Status FitModel::bytesAt(size_t shape, const IsSought &isSought, int64_t size,
                         int64_t &bytes) {
  std::vector<ImportOptions> changed = imports();
  changed[shape].dimensions.clear();
  for (const ImportedTensor &input : inputs[shape]) {
    std::vector<int64_t> sizes = input.shape;
    for (size_t i = 0; i < sizes.size(); ++i)
      if (isSought(input, i))
        sizes[i] = size;
    changed[shape].shapes[input.name] = sizes;
  }
  FitOptions smallest = options;
  smallest.plans = 0;
  smallest.only = shape;
  smallest.within = within;
  return import(std::move(changed), [&](llvm::ArrayRef<CompileBucket> buckets) {
    std::vector<MemoryCurve> found;
    Status status = findMemoryCurves(buckets, smallest, found);
    if (status.ok())
      bytes = found[shape].smallestBytes();
    return status;
  });
}

std::vector<ImportOptions> FitModel::imports() const {
  const TrainingSpec &spec = options.compile.spec;
  std::vector<ImportOptions> list;
  for (const ShapeBucket &bucket : spec.buckets)
    list.push_back(ImportOptions::from(spec, &bucket));
  if (list.empty())
    list.push_back(ImportOptions::from(spec));
  return list;
}

Status FitModel::import(std::vector<ImportOptions> shapes, Use use) {
  mlir::MLIRContext context;
  std::vector<mlir::OwningOpRef<mlir::ModuleOp>> modules;
  std::vector<CompileBucket> buckets;
  bool isFirst = inputs.empty();
  for (size_t i = 0; i < shapes.size(); ++i) {
    shapes[i].withoutWeights = true;
    imported = {};
    auto module = importOnnx(context, path, shapes[i], imported);
    const TrainingSpec &spec = options.compile.spec;
    std::string name = spec.buckets.empty() ? "" : spec.buckets[i].name;
    if (mlir::failed(module)) {
      std::string text = name.empty() ? "" : "with the shapes '" + name + "':";
      for (const std::string &problem : imported.problems())
        text += (text.empty() ? "" : "\n") + problem;
      return Status::refused(text);
    }
    if (isFirst) {
      inputs.push_back(imported.inputs);
      importNotes = imported.notes;
    }
    buckets.push_back({name, **module});
    modules.push_back(std::move(*module));
  }
  return use(buckets);
}

} // namespace sluice::cli
