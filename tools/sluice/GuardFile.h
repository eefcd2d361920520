#pragma once
// What `sluice verify --precision` has measured of a plan, beside it: OUT.precision.json.

#include "runtime/Plan.h"
#include "tools/sluice/Cli.h"

namespace sluice::cli {

std::string guardPath(const std::string &planPath);

/// Adds what tells the plan from others, and writes the file.
Status writeGuard(const Plan &plan, Json figures);

/// The lines of `explain --precision`; into `out` the figures, where there are any. A
/// file that is of another plan is said to be.
std::vector<std::string> guardLines(const Plan &plan, Json &out);

/// "loss 0.0012 +- 0.0031 above f32's 0.431 (...)"
std::string guardText(const Json &figures);

} // namespace sluice::cli
