#pragma once
// A model that `sluice fit` plans for its shapes, and at other batches and sequence
// lengths.

#include "codegen/Fit.h"
#include "frontend/OnnxImporter.h"

#include <functional>

namespace sluice::cli {

class FitModel {
public:
  FitModel(std::string path, TrainingSpec spec, DeviceProfile device, int64_t plans);

  /// Of every shape of the spec. First of all.
  Status findCurves(std::vector<MemoryCurve> &found);
  /// All shapes and rungs of the ladder in one plan, as compile makes it.
  Status findVariants(const std::optional<int64_t> &budget,
                      std::vector<VariantReport> &found);
  /// Of the import at the sizes of the spec.
  const std::vector<std::string> &notes() const { return importNotes; }

  /// Dimension 0 of the first input that has one.
  int64_t batch(size_t shape) const;
  /// Name of the dimension that counts positions: the one asked for, or the only one that
  /// is symbolic besides the batch; empty if there is none.
  std::string sequenceName(const std::string &asked) const;
  int64_t sequence(size_t shape, const std::string &name) const;

  /// From now on a budget is known, and only whether a size fits in it counts.
  void askWithin(int64_t budgetBytes) { within = budgetBytes; }
  /// The least bytes of a shape at another size, or a number on the same side of the
  /// budget.
  Status bytesAtBatch(size_t shape, int64_t size, int64_t &bytes);
  Status bytesAtSequence(size_t shape, const std::string &name, int64_t size,
                         int64_t &bytes);

private:
  /// Whether the size sought is that dimension of an input.
  using IsSought = std::function<bool(const ImportedTensor &input, size_t dimension)>;
  Status bytesAt(size_t shape, const IsSought &isSought, int64_t size, int64_t &bytes);
  std::vector<ImportOptions> imports() const;
  using Use = llvm::function_ref<Status(llvm::ArrayRef<CompileBucket>)>;
  Status import(std::vector<ImportOptions> options, Use use);

  std::string path;
  FitOptions options;
  std::optional<int64_t> within;
  ImportReport imported; // of the last import
  std::vector<std::string> importNotes;
  std::vector<std::vector<ImportedTensor>> inputs; // by shape of the spec
};

} // namespace sluice::cli
