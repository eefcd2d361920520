#pragma once
// The curve of `sluice fit` as a picture.

#include "codegen/Fit.h"

#include <string>

namespace sluice::cli {

/// Budget against predicted time; a line at `budgetBytes` unless it is 0.
std::string fitSvg(const MemoryCurve &curve, int64_t budgetBytes,
                   const std::string &model, const std::string &device);

/// With the signs that XML has names for.
std::string xmlText(const std::string &text);

} // namespace sluice::cli
