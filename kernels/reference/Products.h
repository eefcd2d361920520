#pragma once
// Plain references in double precision for products and convolutions. No blocking, no
// order worth keeping.

#include "kernels/Params.h"

namespace sluice::reference {

/// c is as large as the kernel's C; elements it does not own are left alone.
void gemm(const GemmParams &p, const float *a, const float *b, double *c);

/// x, w -> y; dy, w -> dx; x, dy -> dw, all written.
void convForward(const ConvGeometry &g, const float *x, const float *w, double *y);
void convInputGrad(const ConvGeometry &g, const float *dy, const float *w, double *dx);
void convWeightGrad(const ConvGeometry &g, const float *x, const float *dy, double *dw);

} // namespace sluice::reference
