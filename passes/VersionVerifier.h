#pragma once
// Proves of a plan whose groups interleave or are deferred that its programs read and
// apply what the table of versions says (planning/VersionTable.h).

#include "passes/UpdateGroups.h"
#include "passes/planning/VersionTable.h"

namespace sluice {

/// When each of the module's update groups is updated; empty where all are at every step.
std::vector<GroupTiming> groupTimings(mlir::ModuleOp module);

mlir::LogicalResult verifyVersions(mlir::ModuleOp module);

} // namespace sluice
