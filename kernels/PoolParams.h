#pragma once
// Parameters of the pooling kernels. Spatial dimensions as in ConvParams.h.

#include "kernels/Formats.h"

#include <cstdint>

namespace sluice {

/// x [planes, in...], y [planes, out...], contiguous, computed in f32 from what each is
/// stored as; planes = n * c. Units: planes;
/// may be chained. Window of output o: x[o * stride + k * dilation - pad], k in [0,
/// kernel), what is inside x.
///
/// max_pool_f32: x, y.               NaN wins; an empty window gives -inf.
/// max_pool_grad_f32: x, dy, dx.     dy goes to the first maximum of its window in
/// row-major order. avg_pool_f32: x, y.               Divides by the elements inside x,
/// or with countIncludePad by those inside x
///                                   with its pads (pad, padEnd). Bits: sum in row-major
///                                   order, then / count.
/// avg_pool_grad_f32: dy, dx.        dy / count added by rows of outputs, then kernel
/// positions.
/// A gradient of 16 bits is summed in f32 and rounded once; it also takes a workspace of
/// each worker (poolGradWorkerBytes).
struct PoolParams {
  int64_t planes = 0;
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1};
  int64_t stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1}, pad[3] = {0, 0, 0},
          padEnd[3] = {0, 0, 0};
  int64_t countIncludePad = 0;
  /// Of the first operand, of max_pool_grad's dy, and of the result.
  int64_t sourceType = 0, dyType = 0, resultType = 0;
};

/// 0 where the gradient kernels take no workspace.
int64_t poolGradWorkerBytes(const PoolParams &p);

/// Planes per chunk, from the shape alone: about 32K elements of x.
int64_t poolChunk(const PoolParams &p);

} // namespace sluice
