#pragma once
// The plans of a step that keep, run again or move each of its tensors.

#include "codegen/BudgetSearch.h"
#include "passes/StepProblem.h"
#include "passes/planning/Frontier.h"

#include "mlir/IR/OwningOpRef.h"

#include <deque>
#include <memory>

namespace sluice {

/// One of them.
struct OffloadEntry {
  int64_t member = -1; ///< of the recompute frontier; -1: nothing runs again
  OffloadNames names;
  int64_t deviceBytes = 0; ///< at least
  int64_t stateBytes = 0;  ///< of them, for good
  int64_t hostBytes = 0;
  double timeUs = 0; ///< of an update
  std::vector<std::pair<std::string, std::string>> decisions;

  /// Faster; of plans as fast as each other, the one that moves least.
  bool operator<(const OffloadEntry &other) const;
};

/// A plan of the recompute frontier that has not been ordered yet.
struct OffloadCandidate {
  int64_t member = 0;
  bool moves = false;     ///< beside what must lie in the host's memory
  double leastUs = 0;     ///< of a run of the training entry: no plan of it is faster
  int64_t leastBytes = 0; ///< of the values of the training entry, in any order
};

/// What a planned module takes of the device.
int64_t deviceBytesOf(mlir::ModuleOp module);

/// Plans of one set that does not depend on a budget: those of the recompute frontier as
/// they are, and from some of them on, that which runs nothing again and the smallest
/// with them, tensors that leave the device one after the other (planning/Offload). What
/// a plan costs is known when it has been ordered; before, bounds are.
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
  /// Candidates that run operations again.
  Status addRecompute();
  /// Orders a candidate: its plans are entries then.
  Status expand(const OffloadCandidate &candidate);
  /// Orders some candidates that move nothing and that no entry is sure to beat.
  Status expandSome(int64_t count);
  /// No plan of the candidate that takes at most so many bytes of the device takes less
  /// time for an update; infinite where there is none.
  double leastUs(const OffloadCandidate &candidate, int64_t budgetBytes) const;
  /// No plan of the candidate takes less of the device.
  int64_t leastDeviceBytes(const OffloadCandidate &candidate) const {
    return candidate.moves ? 0 : startStateBytes + candidate.leastBytes;
  }

  /// The fastest of all whose placed plan takes at most so many bytes of the device, if
  /// one does. What is sure to be slower is not ordered.
  Status findFastest(int64_t budgetBytes, std::optional<OffloadEntry> &fastest);
  /// The one whose placed plan takes least of the device.
  Status findSmallest(std::optional<OffloadEntry> &smallest);
  /// Leaves entries that no other beats in both, fastest first.
  void prune();
  /// A module that is planned as the entry says. `deviceBytes`: that it may take, as far
  /// as it matters.
  Status place(const OffloadEntry &entry, std::optional<int64_t> deviceBytes,
               mlir::OwningOpRef<mlir::ModuleOp> &planned);

  std::deque<OffloadEntry> entries; ///< which stay where they are while there are more
  std::vector<OffloadCandidate> candidates; ///< that are no entries yet
  std::unique_ptr<StepProblem> problem;     ///< of recompute; null before addRecompute
  std::optional<Frontier> frontier;
  LinkRates link;
  int64_t unconstrainedBytes = 0;  ///< of the plan that neither runs again nor moves
  double unconstrainedUs = 0;      ///< of one run of its training entry
  double plainUs = 0;              ///< of an update of it, before launches are merged
  double stepUs = 0, stepRuns = 1; ///< of its training entry, and how often that runs
  int64_t readOnlyBytes = 0, residentStateBytes = 0, movableBytes = 0;
  int64_t startStateBytes = 0; ///< on the device, before anything moves

private:
  Status measurePlain();
  Status addEntries(int64_t member, bool moves);
  OffloadChoice startOf(OffloadStep &step) const;
  void rememberLink(const OffloadStep &step);
  void rememberTimes(const OffloadStep &step, mlir::ModuleOp ordered);
  mlir::OwningOpRef<mlir::ModuleOp> cloneOf(int64_t member);

  mlir::ModuleOp module;
  const CompileOptions &options;
  const BudgetChoice *other;
  bool isSameStep;
  mlir::OwningOpRef<mlir::ModuleOp> scratch; // what `problem` refers to
};

} // namespace sluice
