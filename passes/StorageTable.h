#pragma once
// Which parameters are stored in which format: rules and the policy's choices, resolved.

#include "ir/TrainingSpec.h"
#include "kernels/StoredFormats.h"
#include "passes/StateSymbols.h"

namespace sluice {

/// What a parameter is stored as, and why.
struct StorageChoice {
  StoredFormat format = StoredFormat::fp32;
  bool keepsMaster = false;
  bool isDelayed = false; // of one scale for the tensor
  std::string moments;    // empty: as `precision.optimizer_state`
  std::string why;        // empty: nothing chose it
};

/// By symbol; parameters that nothing chooses for are left out. Later rules win over
/// earlier ones, rules over the policy. Where a format cannot hold a tensor in whole
/// blocks it stays fp32, and `why` says so. Fails after an error for a rule without a
/// parameter.
mlir::FailureOr<llvm::StringMap<StorageChoice>> resolveStorage(mlir::ModuleOp module,
                                                               const TrainingSpec &spec);

} // namespace sluice
