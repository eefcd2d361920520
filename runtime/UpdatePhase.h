#pragma once
// Which groups of parameters a step updates, where they take turns (`update.mode:
// {interleave: K}`) or apply gradients of steps before ({defer: D}), and what still
// waits.
//
// The plan's state "window/waiting" counts the steps since nothing waited; with the
// number of steps it says what waits for every group, so checkpoints carry all there is
// to know.

#include "runtime/plan_generated.h"

#include <algorithm>
#include <cstdint>

namespace sluice {

class UpdatePhase {
public:
  UpdatePhase() = default;
  /// `waiting`: null where nothing ever waits.
  UpdatePhase(const fbs::Plan &plan, int64_t *waiting);

  /// Steps of a turn: step t runs the program update.(t mod every).
  int64_t every() const { return turn; }
  bool isStaggered() const { return waiting != nullptr; }
  /// Some gradient waits to be applied.
  bool hasWaiting() const;
  /// The group is updated at the end of `step`, counted from 0: it is its turn, and it
  /// has a gradient to apply.
  bool applies(const fbs::ParamGroup &group, int64_t step) const;
  /// A step is done.
  void count() {
    if (waiting)
      ++*waiting;
  }

  /// After `steps` steps what waits is applied in so many rounds, oldest first; round r
  /// runs the program of step `steps` + r with nothing new.
  int64_t rounds() const { return std::max(turn - 1, longest); }
  bool appliesInRound(const fbs::ParamGroup &group, int64_t steps, int64_t round) const;
  void flushed() {
    if (waiting)
      *waiting = 0;
  }

private:
  int64_t turn = 1, longest = 0; // steps; the longest delay
  int64_t *waiting = nullptr;
};

} // namespace sluice
