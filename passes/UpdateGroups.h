#pragma once
// The groups of parameters that are updated together, as attributes.

#include "ir/graph/Graph.h"

#include <string>
#include <vector>

namespace sluice {

/// Of a parameter: the index of its group, an i64. Absent: no groups, or nothing reads
/// it.
inline constexpr llvm::StringLiteral updateGroupAttr = "graph.update_group";

struct UpdateGroup {
  std::string name;
  int64_t bytes = 0;  ///< of parameters
  double us = 0;      ///< of the backward part; by topology only
  int64_t blocks = 0; ///< by topology only
};

/// Writes the module's `graph.update_groups`, an array of dictionaries {name, bytes, us,
/// blocks} in the order in which gradients are ready (of rules: as given).
void setUpdateGroups(mlir::ModuleOp module, llvm::ArrayRef<UpdateGroup> groups);
/// Empty without groups.
std::vector<UpdateGroup> updateGroups(mlir::ModuleOp module);

} // namespace sluice
