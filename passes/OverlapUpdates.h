#pragma once
// Groups that are reduced and updated as soon as their gradients are complete
// (`update.mode: overlap`): the sums of a group over ranks are one message, sent when the
// last of its gradients is there, and its update comes right behind, beside the backward
// part of other groups. No gradient is late, so the bits are those of `sync`.

#include "passes/UpdateGroups.h"

#include "llvm/ADT/StringMap.h"

namespace sluice {

struct TrainingSpec;

/// Refuses what needs the gradients of all groups before the first update.
mlir::LogicalResult checkOverlap(mlir::ModuleOp module, const TrainingSpec &spec);

/// Notes on the module which parameters are in groups that overlap; `groupOf` has the
/// group of each of `parameters`, or -1.
void noteOverlap(mlir::ModuleOp module, const TrainingSpec &spec,
                 llvm::ArrayRef<UpdateGroup> groups,
                 llvm::ArrayRef<graph::ParameterOp> parameters,
                 llvm::ArrayRef<int32_t> groupOf);

/// What noteOverlap has noted.
class OverlappedGroups {
public:
  explicit OverlappedGroups(mlir::ModuleOp module);

  bool any() const { return !groups.empty(); }
  /// The group of the parameter that a state tensor or a collective belongs to, such as
  /// "grad/NAME" or "opt/NAME/m"; -1: none that overlaps.
  int32_t of(llvm::StringRef symbol) const;

private:
  llvm::StringMap<int32_t> groups; // by name in the model
};

} // namespace sluice
