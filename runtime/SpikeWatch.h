#pragma once
// The rule for losses that fluctuate: deviation / mean of the losses of a window above a
// bound, in two windows in a row, multiplies every rate; then not for a while, and a few
// times at most. Its state is part of the plan's, so that checkpoints hold it, and losses
// are those of all ranks, so that all decide alike.

#include "runtime/plan_generated.h"

#include <cstddef>
#include <optional>

namespace sluice {

class SpikeWatch {
public:
  /// Numbers of state "scale/spikes", all f64: the mean and the sum of squared
  /// differences (Welford) of the losses of the window so far, their number, whether the
  /// window before was above the bound, updates of the cool-down that are left, and cuts.
  static constexpr size_t stateSize = 6;

  SpikeWatch() = default;
  SpikeWatch(const fbs::SpikeRule *rule, double *state)
      : rule(state ? rule : nullptr), state(state) {}

  /// On every rate.
  double factor() const;
  /// Cuts so far.
  int64_t times() const;
  /// After an update that was applied. The fluctuation, where it cuts the rates.
  std::optional<double> add(double loss);

private:
  enum Field { mean, squares, count, wasAbove, cooldown, cuts };

  const fbs::SpikeRule *rule = nullptr;
  double *state = nullptr;
};

} // namespace sluice
