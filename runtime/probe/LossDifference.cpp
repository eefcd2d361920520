#include "runtime/probe/LossDifference.h"

#include <cmath>

namespace sluice {

LossDifference compareLosses(std::span<const PairedRun> runs) {
  constexpr size_t windowsOfRun = 4;
  RunningMean windows, byRun, references, ours;
  for (const PairedRun &run : runs) {
    size_t begin = run.ours.size() / 2, count = run.ours.size() - begin;
    RunningMean reference, mine;
    for (size_t w = 0; w < windowsOfRun; ++w) {
      RunningMean window;
      for (size_t i = begin + count * w / windowsOfRun;
           i < begin + count * (w + 1) / windowsOfRun; ++i) {
        window.add(run.ours[i] - run.reference[i]);
        reference.add(run.reference[i]);
        mine.add(run.ours[i]);
      }
      windows.add(window.mean(), static_cast<double>(window.count()));
    }
    ours.add(mine.mean());
    references.add(reference.mean());
    byRun.add(mine.mean() - reference.mean());
  }
  LossDifference found;
  found.ours = ours.mean();
  found.reference = references.mean();
  found.mean = byRun.mean();
  found.windows = windows.count();
  found.isOverRuns = byRun.halfInterval() > windows.halfInterval();
  const RunningMean &wider = found.isOverRuns ? byRun : windows;
  found.standardError = wider.standardError();
  found.halfInterval = wider.halfInterval();
  found.referenceSpread =
      references.standardError() * std::sqrt(static_cast<double>(references.count()));
  return found;
}

} // namespace sluice
