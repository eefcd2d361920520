#pragma once
// Verifies a placement by a sweep over time. Shares no code with the planner.

#include "passes/planning/MemoryPlanner.h"

#include <string>

namespace sluice {

/// Empty when the solution is sound: sizes and counts agree, offsets are aligned and not
/// negative, fixed offsets are kept, no two buffers overlap in time and space, and peak,
/// bound and `fits` are as stated. Otherwise says what is wrong, naming the buffers by
/// index.
std::string checkPlacement(const PlacementProblem &problem,
                           const PlacementSolution &solution);

} // namespace sluice
