#pragma once
// The descriptions of the CTC kernels.

#include "kernels/Extent.h"

namespace sluice::extent {

bool describeCtcLoss(const int64_t *params, int64_t units, Extents &extents);
bool describeCtcLossGrad(const int64_t *params, int64_t units, Extents &extents);

} // namespace sluice::extent
