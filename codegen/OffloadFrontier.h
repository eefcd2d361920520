#pragma once
// The plans of a step that keep, run again or move each of its tensors.

#include "codegen/BudgetSearch.h"
#include "passes/StepProblem.h"
#include "passes/planning/Frontier.h"

#include "mlir/IR/OwningOpRef.h"

#include <memory>

namespace sluice {

/// One of them.
struct OffloadEntry {
  int64_t member = -1; ///< of the recompute frontier; -1: nothing runs again
  OffloadNames names;
  int64_t deviceBytes = 0; ///< at least
  int64_t hostBytes = 0;
  double timeUs = 0; ///< of an update
  std::vector<std::pair<std::string, std::string>> decisions;
};

/// What a planned module takes of the device.
int64_t deviceBytesOf(mlir::ModuleOp module);

/// For some plans of the recompute frontier, from the one that runs nothing again to the
/// smallest, tensors leave the device one after the other (planning/Offload). None of it
/// depends on a budget.
class OffloadFrontier {
public:
  /// `other`, `isSameStep`: as for tradeMemoryAndLink.
  OffloadFrontier(mlir::ModuleOp module, const CompileOptions &options,
                  const BudgetChoice *other = nullptr, bool isSameStep = false)
      : module(module), options(options), other(other), isSameStep(isSameStep) {}

  /// Applies a fixed policy of recompute to the module, if there is one. Then plans that
  /// run nothing more: all of them, or without `moves` only the one that has in the
  /// host's memory what must be there.
  Status start(bool moves);
  /// Plans that run operations again, too.
  Status addRecompute();
  /// Leaves those that no other beats in both, fastest first.
  void prune();
  /// A module that is planned as the entry says.
  Status place(const OffloadEntry &entry, mlir::OwningOpRef<mlir::ModuleOp> &planned);
  /// The entry whose placed plan takes least of the device.
  Status findSmallest(const OffloadEntry *&smallest);

  std::vector<OffloadEntry> entries;
  std::unique_ptr<StepProblem> problem; ///< of recompute; null before addRecompute
  std::optional<Frontier> frontier;
  LinkRates link;
  int64_t unconstrainedBytes = 0; ///< of the plan that neither runs again nor moves
  double unconstrainedUs = 0;     ///< of one run of its training entry
  double plainUs = 0;             ///< of an update of it
  int64_t readOnlyBytes = 0, residentStateBytes = 0, movableBytes = 0;

private:
  Status measurePlain();
  Status addEntries(int64_t member, bool moves);
  OffloadChoice startOf(OffloadStep &step) const;
  void rememberLink(const OffloadStep &step);
  mlir::OwningOpRef<mlir::ModuleOp> cloneOf(int64_t member);

  mlir::ModuleOp module;
  const CompileOptions &options;
  const BudgetChoice *other;
  bool isSameStep;
  mlir::OwningOpRef<mlir::ModuleOp> scratch; // what `problem` refers to
};

} // namespace sluice
