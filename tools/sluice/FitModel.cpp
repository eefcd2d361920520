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

Status FitModel::curve(MemoryCurve &found) {
  Status status = run(ImportOptions::from(options.compile.spec), options, found);
  inputs = imported.inputs;
  return status;
}

int64_t FitModel::batch() const {
  for (const ImportedTensor &input : inputs)
    if (!input.shape.empty())
      return input.shape[0];
  return 0;
}

std::string FitModel::sequenceName(const std::string &asked) const {
  std::string found;
  for (const ImportedTensor &input : inputs)
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

int64_t FitModel::sequence(const std::string &name) const {
  for (const ImportedTensor &input : inputs)
    for (size_t i = 1; i < input.symbols.size(); ++i)
      if (input.symbols[i] == name)
        return input.shape[i];
  return 0;
}

Status FitModel::bytesAtBatch(int64_t size, int64_t &bytes) {
  int64_t now = batch();
  return bytesAt(
      [now](const ImportedTensor &input, size_t dimension) {
        return dimension == 0 && input.shape[0] == now;
      },
      size, bytes);
}

Status FitModel::bytesAtSequence(const std::string &name, int64_t size, int64_t &bytes) {
  return bytesAt(
      [&name](const ImportedTensor &input, size_t dimension) {
        return dimension > 0 && isNamed(input, dimension, name);
      },
      size, bytes);
}

Status FitModel::bytesAt(const IsSought &isSought, int64_t size, int64_t &bytes) {
  ImportOptions import = ImportOptions::from(options.compile.spec);
  import.dimensions.clear();
  for (const ImportedTensor &input : inputs) {
    std::vector<int64_t> shape = input.shape;
    for (size_t i = 0; i < shape.size(); ++i)
      if (isSought(input, i))
        shape[i] = size;
    import.shapes[input.name] = shape;
  }
  FitOptions smallest = options;
  smallest.plans = 0;
  MemoryCurve found;
  Status status = run(import, smallest, found);
  bytes = found.smallestBytes();
  return status;
}

Status FitModel::run(ImportOptions import, const FitOptions &fit, MemoryCurve &found) {
  import.withoutWeights = true;
  mlir::MLIRContext context;
  imported = {};
  auto module = importOnnx(context, path, import, imported);
  if (mlir::succeeded(module))
    return findMemoryCurve(**module, fit, found);
  std::string text;
  for (const std::string &problem : imported.problems())
    text += (text.empty() ? "" : "\n") + problem;
  return Status::refused(text);
}

} // namespace sluice::cli
