#pragma once
// The descriptions of the attention kernels.

#include "kernels/Extent.h"

namespace sluice::extent {

bool describeAttention(const int64_t *params, int64_t units, Extents &extents);
bool describeAttentionGrad(const int64_t *params, int64_t units, Extents &extents);

} // namespace sluice::extent
