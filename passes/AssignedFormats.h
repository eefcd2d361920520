#pragma once
// What the pass AssignFormats leaves in the module for those behind it.

#include "ir/graph/Graph.h"

namespace sluice {

/// Of a parameter, text: how `precision.policy` has it stored, without a master. Rules of
/// the spec that name the parameter win over it.
inline constexpr llvm::StringLiteral assignedFormatAttr = "graph.assigned_format";

/// Of the module: what the policy had to decide on, for searches over its budget. A
/// dictionary of i64 `wide_bytes`, `smallest_bytes`, `bytes` and f64 `increase`, `bound`,
/// and the array `walk` of budgets, falling, that the relaxation passes through.
inline constexpr llvm::StringLiteral policyAttr = "graph.policy";

} // namespace sluice
