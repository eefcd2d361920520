#pragma once
// The step reservation over a program, as SVG: time (launches) to the right, addresses
// up.

#include "runtime/Plan.h"

#include <string>

namespace sluice::cli {

/// A standalone SVG document: a rectangle per buffer, coloured by category, hatched where
/// it is run again or offloaded, outlined where it is live at the peak; how many bytes
/// are live; and a table that names every buffer, those of the peak first. Rectangles
/// have the table's numbers, where there is room, and all of it as a tooltip.
std::string memorySvg(const Plan &plan, const PlanVariant &variant,
                      const fbs::Program &program);

} // namespace sluice::cli
