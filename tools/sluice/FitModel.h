#pragma once
// A model that `sluice fit` plans at several batches and sequence lengths.

#include "codegen/Fit.h"
#include "frontend/OnnxImporter.h"

#include <functional>

namespace sluice::cli {

class FitModel {
public:
  FitModel(std::string path, TrainingSpec spec, DeviceProfile device, int64_t plans);

  /// At the sizes of the spec. First of all.
  Status curve(MemoryCurve &found);
  const ImportReport &report() const { return imported; }

  /// Dimension 0 of the first input that has one.
  int64_t batch() const;
  /// Name of the dimension that counts positions: the one asked for, or the only one that
  /// is symbolic besides the batch; empty if there is none.
  std::string sequenceName(const std::string &asked) const;
  int64_t sequence(const std::string &name) const;

  /// The least bytes at another size.
  Status bytesAtBatch(int64_t size, int64_t &bytes);
  Status bytesAtSequence(const std::string &name, int64_t size, int64_t &bytes);

private:
  /// Whether the size sought is that dimension of an input.
  using IsSought = std::function<bool(const ImportedTensor &input, size_t dimension)>;
  Status bytesAt(const IsSought &isSought, int64_t size, int64_t &bytes);
  Status run(ImportOptions import, const FitOptions &fit, MemoryCurve &found);

  std::string path;
  FitOptions options;
  ImportReport imported;
  std::vector<ImportedTensor> inputs; // at the sizes of the spec
};

} // namespace sluice::cli
