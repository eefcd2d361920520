#pragma once
// The regions of `memory.regions`: which operations of the step they are.

#include "passes/StepProblem.h"

namespace sluice {

struct NamedRegions {
  std::string error;                            ///< empty unless a region is refused
  std::vector<std::vector<int32_t>> operations; ///< of each, for RecomputePolicy
};

/// Each region is a list of patterns (NamePatterns.h). It is refused if a pattern names
/// nothing of the forward part, if two regions name the same node, or if a path of nodes
/// leaves it and comes back. An operation that also computes nodes outside belongs to the
/// region only if all its results lie inside.
NamedRegions namedRegions(const StepProblem &step,
                          llvm::ArrayRef<std::vector<std::string>> regions);

} // namespace sluice
