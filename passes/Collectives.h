#pragma once
// What ranks do together, on its way from the graph to a queue of its own.

#include "passes/PlanLaunches.h"

#include "ir/graph/Graph.h"

namespace sluice {

/// Until ScheduleCollectives a collective is a launch of this kernel, which no catalogue
/// has, with its name and the type of its elements (elementAttr).
inline constexpr llvm::StringLiteral collectiveKernel = "all_reduce";
inline constexpr llvm::StringLiteral collectiveNameAttr = "plan.collective";
/// Then also "all_reduce", "reduce_scatter" or "all_gather", and of the last two the rows
/// that are dealt out.
inline constexpr llvm::StringLiteral collectiveKindAttr = "plan.collective_kind";
inline constexpr llvm::StringLiteral collectiveRowCountAttr = "plan.collective_rows";
bool isCollective(plan::LaunchOp launch);

/// Of the module: how many ranks share an update and what one waits for others; the
/// spec's `comm.bucket` in bytes and `comm.window_ms`, absent for auto and none; whether
/// memory has a budget.
inline constexpr llvm::StringLiteral ranksAttr = "graph.ranks";
inline constexpr llvm::StringLiteral timeoutAttr = "graph.timeout_s";
inline constexpr llvm::StringLiteral bucketBytesAttr = "graph.bucket_bytes";
inline constexpr llvm::StringLiteral windowMsAttr = "graph.window_ms";
inline constexpr llvm::StringLiteral hasBudgetAttr = "graph.has_budget";

/// True if the sum may take the bytes of the state that it is read from: the entry writes
/// the symbol anew, and nothing else reads what it was.
bool reducesInPlace(graph::AllReduceOp op);

/// True if an operation that is the only one to read `value` may write over its bytes.
bool mayOverwrite(mlir::Value value);

/// A collective of a program, and between which launches it runs.
struct QueuedCollective {
  plan::CollectiveOp op;
  int64_t waitLaunches = 0; ///< launches that are done before it begins
  int64_t doneBy = 0; ///< the first launch that waits until it is done; behind the last
                      ///< one: the count of launches + 1
};

/// The collectives of a program in order.
llvm::SmallVector<QueuedCollective> collectivesOf(plan::ProgramOp program);

/// What a collective reads and writes.
llvm::SmallVector<LaunchAccess> accessesOf(plan::CollectiveOp collective);

} // namespace sluice
