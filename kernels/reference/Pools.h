#pragma once
// Plain references in double precision for pools.

#include "kernels/Params.h"

namespace sluice::reference {

void maxPool(const PoolParams &p, const float *x, double *y);
void maxPoolGrad(const PoolParams &p, const float *x, const float *dy, double *dx);
void avgPool(const PoolParams &p, const float *x, double *y);
void avgPoolGrad(const PoolParams &p, const float *dy, double *dx);

} // namespace sluice::reference
