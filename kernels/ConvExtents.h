#pragma once
#include "kernels/Extent.h"

namespace sluice::extent {

bool describeConvForward(const int64_t *params, int64_t units, Extents &e);
bool describeConvInputGrad(const int64_t *params, int64_t units, Extents &e);
bool describeConvWeightGrad(const int64_t *params, int64_t units, Extents &e);
bool describeDepthwiseForward(const int64_t *params, int64_t units, Extents &e);
bool describeDepthwiseInputGrad(const int64_t *params, int64_t units, Extents &e);
bool describeDepthwiseWeightGrad(const int64_t *params, int64_t units, Extents &e);

} // namespace sluice::extent
