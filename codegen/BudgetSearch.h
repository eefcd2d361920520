#pragma once
// Trades time for memory by running operations again: by a fixed policy, or as little as
// a budget of bytes allows.

#include "codegen/Compile.h"
#include "passes/OffloadStep.h"

namespace sluice {

/// What was found, as far as the module does not say it.
struct BudgetChoice {
  int64_t unconstrainedBytes = 0; ///< arena of the plan that runs nothing again
  double unconstrainedUs = 0;     ///< predicted, of one run of the training entry
  /// No plan of at most as many bytes, counted as the planner counts, runs less again
  /// than this time.
  double leastAgainUs = 0;
  std::string note; ///< for the report; empty where the budget asks for nothing
  std::vector<std::pair<std::string, std::string>> decisions; ///< subject, why
  OffloadNames offload;           ///< what lies in the host's memory
  int64_t hostBytes = 0;          ///< that it needs there
  int64_t member = -1;            ///< of the recompute frontier, beside `offload`
  std::vector<std::string> notes; ///< further lines of the report, "topic: text"
};

/// Rewrites the training entry of `module` (regions are formed) to run operations again.
/// Under a budget: the frontier of planning/Frontier is built without regard to it; each
/// of its plans is then really ordered and placed, and the fastest that fits is taken. If
/// none fits, the smallest is left in the module, for the report of what is missing.
Status tradeMemory(mlir::ModuleOp module, const CompileOptions &options,
                   BudgetChoice &choice);

} // namespace sluice
