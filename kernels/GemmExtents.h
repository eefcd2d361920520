#pragma once
#include "kernels/Extent.h"

namespace sluice::extent {

bool describeGemm(const int64_t *params, int64_t units, Extents &e);
bool describeGemmPacked(const int64_t *params, int64_t units, Extents &e);
bool describeGemmPackB(const int64_t *params, int64_t units, Extents &e);
bool describeGemmSplitK(const int64_t *params, int64_t units, Extents &e);
bool describeSumSlices(const int64_t *params, int64_t units, Extents &e);

} // namespace sluice::extent
