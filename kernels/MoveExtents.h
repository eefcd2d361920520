#pragma once
#include "kernels/Extent.h"

namespace sluice::extent {

bool describeMaxPool(const int64_t *params, int64_t units, Extents &e);
bool describeMaxPoolGrad(const int64_t *params, int64_t units, Extents &e);
bool describeAvgPool(const int64_t *params, int64_t units, Extents &e);
bool describeAvgPoolGrad(const int64_t *params, int64_t units, Extents &e);
bool describeCopy(const int64_t *params, int64_t units, Extents &e);
bool describeFill(const int64_t *params, int64_t units, Extents &e);
bool describeGather(const int64_t *params, int64_t units, Extents &e);
bool describeGatherElements(const int64_t *params, int64_t units, Extents &e);
bool describeScatterAdd(const int64_t *params, int64_t units, Extents &e);
bool describeScatterElements(const int64_t *params, int64_t units, Extents &e);
bool describeScatterElementsAdd(const int64_t *params, int64_t units, Extents &e);
bool describeArgReduce(const int64_t *params, int64_t units, Extents &e);
bool describeArgReduceI64(const int64_t *params, int64_t units, Extents &e);
bool describeCumsum(const int64_t *params, int64_t units, Extents &e);
bool describeCumsumI64(const int64_t *params, int64_t units, Extents &e);

} // namespace sluice::extent
