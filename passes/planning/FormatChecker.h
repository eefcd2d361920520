#pragma once
// Verifies a choice of formats and its bound. Shares no code with the planner.

#include "passes/planning/FormatAssignment.h"

#include <string>

namespace sluice {

/// Empty when the solution is sound: one option of each item, sums as stated, within the
/// budget, the dual bound follows from the stated price of a byte, and bounds are not
/// above the increase. Otherwise says what is wrong.
std::string checkFormats(const FormatProblem &problem, const FormatSolution &solution);

} // namespace sluice
