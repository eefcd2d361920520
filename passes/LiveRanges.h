#pragma once
// When the bytes of each buffer are taken.

#include "passes/PlanLaunches.h"

#include <limits>

namespace sluice {

struct LiveRange {
  int64_t first = std::numeric_limits<int64_t>::max(), last = -1;
  void include(int64_t instant) {
    first = std::min(first, instant);
    last = std::max(last, instant);
  }
  bool empty() const { return first > last; }
};
using LiveRanges = llvm::DenseMap<mlir::Operation *, LiveRange>;

/// Of buffers on the device. Instants are indices of launches; -1 is before the first,
/// the count of launches behind the last. What copies touch is live from the launch that
/// may run when the copy begins to the last one that may run before it is done.
LiveRanges liveRanges(plan::ProgramOp program);

/// Of buffers in the host's memory. Instants are indices of copies.
LiveRanges hostLiveRanges(plan::ProgramOp program);

/// On a module, while a plan is looked for: bytes that a step reservation may have. One
/// that fits is packed no tighter, one that cannot fit not at all.
inline constexpr llvm::StringLiteral stepBudgetAttr = "plan.step_budget";

/// Gives results the bytes of an operand that nothing reads later, and uses up
/// `in_place`.
void mergeInPlace(plan::ProgramOp program);

/// Of entries that do not train: lets tensors that are copied as a whole into a part of
/// another one be written there, where the peak allows it.
void placeOperands(plan::ProgramOp program);

} // namespace sluice
