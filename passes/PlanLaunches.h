#pragma once
// The launches of a program as planners see them: which buffers each reads and writes.

#include "ir/plan/Plan.h"

#include "llvm/ADT/MapVector.h"

namespace sluice {

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

/// The launches of a program in order.
llvm::SmallVector<plan::LaunchOp> launchesOf(plan::ProgramOp program);

/// Buffers of the program's inputs and outputs.
bool isInput(plan::BufferOp buffer);
bool isOutput(plan::BufferOp buffer);

} // namespace sluice
