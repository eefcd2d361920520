#pragma once
// Columns of a table to mean 0 and variance 1.

#include "runtime/data/DataSpec.h"

#include <vector>

namespace sluice {

/// The option `standardize`: `no`; `yes`, by mean and standard deviation (of the
/// population) of the rows in `range`; or `first:end`, by those of these rows, so that
/// data for testing is scaled as the training rows of the same file were. A constant
/// column becomes 0. `values` is row-major, `rows` times as many columns.
Status standardizeColumns(const DataSpec &spec, int64_t rows,
                          std::vector<double> &values);

} // namespace sluice
