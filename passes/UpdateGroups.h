#pragma once
// The groups of parameters that are updated together, as attributes.

#include "ir/graph/Graph.h"

#include <string>
#include <vector>

namespace sluice {

/// Of a parameter: the index of its group, an i64. Absent: no groups, or nothing reads
/// it.
inline constexpr llvm::StringLiteral updateGroupAttr = "graph.update_group";

/// Of a parameter: how many steps later its gradients are applied, an i64; absent: at
/// once.
inline constexpr llvm::StringLiteral updateDelayAttr = "graph.update_delay";
/// Of a parameter that interleaves: the steps, modulo `graph.update_every`, in which it
/// is updated, an i64. Absent: in all.
inline constexpr llvm::StringLiteral updatePhaseAttr = "graph.update_phase";
/// Of the module: after how many steps the turn is round, an i64; absent: 1.
inline constexpr llvm::StringLiteral updateEveryAttr = "graph.update_every";

/// Of the module, where gradients wait: before what they are applied, an array of "eval",
/// "save" and "stop".
inline constexpr llvm::StringLiteral updateFlushAttr = "graph.update_flush";

/// "update", or where groups interleave "update.P", P the step modulo
/// `graph.update_every`.
inline bool isUpdateEntry(llvm::StringRef entry) {
  return entry == "update" || entry.starts_with("update.");
}
/// How often, at a step, the entry of an update runs on the average.
double updateRuns(mlir::ModuleOp module, llvm::StringRef entry);

struct UpdateGroup {
  std::string name;
  int64_t bytes = 0;                       ///< of parameters
  double us = 0;                           ///< of the backward part; by topology only
  int64_t blocks = 0;                      ///< by topology only
  std::string mode = "sync";               ///< overlap, interleave, defer
  int64_t every = 1, phase = 0, delay = 0; ///< of interleave, of defer
};

/// Writes the module's `graph.update_groups`, an array of dictionaries of these fields,
/// in the order in which gradients are ready (of rules: as given).
void setUpdateGroups(mlir::ModuleOp module, llvm::ArrayRef<UpdateGroup> groups);
/// Empty without groups.
std::vector<UpdateGroup> updateGroups(mlir::ModuleOp module);

} // namespace sluice
