#pragma once
// How training shows: a bar that redraws itself on a terminal, plain lines elsewhere. On
// standard error.

#include "runtime/Trainer.h"

#include <chrono>
#include <string>

namespace sluice::cli {

class Progress {
public:
  Progress();
  void update(const TrainProgress &progress);
  /// Ends the bar's line, so that other output starts on a new one.
  void finish();

private:
  std::string bar(const TrainProgress &progress) const;
  std::string numbers(const TrainProgress &progress);

  using Clock = std::chrono::steady_clock;
  Clock::time_point start, lastShown;
  int64_t firstUpdate = -1, firstSample = 0;
  int64_t lastLine = 0;
  bool terminal, drawn = false;
};

} // namespace sluice::cli
