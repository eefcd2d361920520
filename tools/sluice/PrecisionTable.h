#pragma once
// What `explain --precision` says: for each parameter, what it is computed and kept in.

#include "runtime/PlanReader.h"
#include "tools/sluice/Cli.h"

namespace sluice::cli {

/// A row for each parameter: `name`, `computes`, `stored`, `master`, `moments`, `bytes`
/// (of the parameter, its master and moments together), `bytes_per_element`, `why`.
Json precisionRows(const Plan &plan);

/// The rows as aligned text, with a header and a line of totals.
std::vector<std::string> precisionLines(const Json &rows);

} // namespace sluice::cli
