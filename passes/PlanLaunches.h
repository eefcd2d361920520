#pragma once
// The launches of a program as planners see them: which buffers each reads and writes.

#include "ir/plan/Plan.h"

#include "llvm/ADT/MapVector.h"

namespace sluice {

/// On operations of an entry whose recompute is planned, and on their launches: the
/// operation's index in the problem, then 0 for its first run or another number for a
/// clone.
inline constexpr llvm::StringLiteral runAttr = "run";
/// On a chained launch: the run it begins with.
inline constexpr llvm::StringLiteral chainedRunAttr = "chained_run";

/// One operand of a launch: bytes of a root, and what is done to them.
struct LaunchAccess {
  plan::BufferRange range;
  bool read = false, written = false;
};

/// Reads, writes and workspaces of all stages; a workspace is neither read nor written
/// from outside.
llvm::SmallVector<LaunchAccess> accessesOf(plan::LaunchOp launch);

/// True if one of the two writes bytes that the other touches: their order matters. State
/// buffers are compared by symbol.
bool conflict(const LaunchAccess &a, const LaunchAccess &b);

/// A copy of a program, and between which launches it runs.
struct QueuedCopy {
  plan::CopyOp op;
  int64_t waitLaunches = 0; ///< launches that are done before it begins
  int64_t doneBy = 0; ///< the first launch that waits until it is done; behind the last
                      ///< one: the count of launches + 1
};

/// The copies of a program in order.
llvm::SmallVector<QueuedCopy> copiesOf(plan::ProgramOp program);

/// The launches of a program in order.
llvm::SmallVector<plan::LaunchOp> launchesOf(plan::ProgramOp program);

/// Of a buffer that holds several values in turn: their labels, "a, b".
inline constexpr llvm::StringLiteral bufferNamesAttr = "names";
llvm::StringRef bufferNames(plan::BufferOp buffer);

/// Buffers of the program's inputs and outputs.
bool isInput(plan::BufferOp buffer);
bool isOutput(plan::BufferOp buffer);

} // namespace sluice
