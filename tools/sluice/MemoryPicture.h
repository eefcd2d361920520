#pragma once
// The step reservation over a program, as SVG: time (launches) to the right, addresses
// up.

#include "runtime/Plan.h"

#include <string>

namespace sluice::cli {

/// The instant (launch index) at which most bytes are live, and how many.
struct PeakInstant {
  int64_t launch = 0;
  uint64_t bytes = 0;
};
PeakInstant peakInstant(const fbs::Program &program);

/// A standalone SVG document: a rectangle per buffer with its name, size and live range
/// as a tooltip, coloured by category; the peak instant is marked.
std::string memorySvg(const fbs::Program &program);

} // namespace sluice::cli
