#pragma once
// What `explain --precision` says: for each parameter, what it is computed and kept in.

#include "runtime/PlanReader.h"
#include "tools/sluice/Cli.h"

namespace sluice::cli {

/// A row for each parameter: `name`, `computes`, `stored`, `master`, `moments`, `bytes`
/// (of the parameter, its master and moments together), `bytes_per_element`, `why`;
/// `importance` and `increase` (expected, of the loss) where a policy chose by them, else
/// null.
Json precisionRows(const Plan &plan);

/// What the report says of `precision.policy`: budgets, expected increase, gap.
Json policyLines(const Plan &plan);

/// The rows as aligned text, with a header and a line of totals.
std::vector<std::string> precisionLines(const Json &rows);

} // namespace sluice::cli
