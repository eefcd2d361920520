#pragma once
// Parameters of the convolution kernels. One to three spatial dimensions: shorter ones
// are padded in front with size 1, kernel 1, stride 1, dilation 1, pad 0.

#include "kernels/GemmParams.h"

namespace sluice {

/// x [n, c, in...], w [m, c / groups, kernel...], y [n, m, out...], all contiguous. Each
/// is stored as the type beside the geometry says (Formats.h) and summed in f32; a result
/// of 16 bits is rounded once.
/// y[o] = sum over kernel positions k of w[k] * x[o * stride + k * dilation - pad]; what
/// lies outside x is 0. Padding at the end is what `out` implies.
struct ConvGeometry {
  int64_t n = 0, c = 0, m = 0, groups = 1;
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1};
  int64_t stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1}, pad[3] = {0, 0, 0};
};

/// conv_forward_f32:    x, w, y, workspace of each worker (convRoom).
/// conv_input_grad_f32: dy, w, dx, workspace of each worker. Also the transposed
/// convolution. Weights are packed block by block as the product goes, so a unit should
/// have columns enough to repay that. Units: blocks of `unitChannels` channels of the
/// result (a divisor of them), the faster index, of `unitImages` images (0: one), whose
/// columns share tiles. May be chained when a unit is one image or has all channels.
///
/// Bits as gemm_f32 with k = (channel, kernel position), denormals and `amx` as there.
/// The input gradient takes the kernel positions that reach the element only; both leave
/// out positions at the ends of an axis of the kernel that are outside x for every y.
struct ConvParams {
  ConvGeometry g;
  int64_t unitChannels = 0;
  int64_t sourceType = 0, resultType = 0; ///< of x and y, or dy and dx
  int64_t unitImages = 0;
  int64_t wType = 0;
};

/// The parts of a worker's workspace, in floats.
struct ConvRoom {
  int64_t sums, weights, panel, planes;
  int64_t bytes() const { return (sums + weights + panel + planes) * 4; }
};
ConvRoom convRoom(const ConvParams &p, bool inputGrad);

/// conv_weight_grad_f32: x, dy, partial[slices][m, c / groups, kernel...], workspace of
/// each worker; then sum_slices_f32 with rows = m, cols = c / groups * kernel. Slice s
/// sums images [s * sliceImages, ...) in order. Units: slices * groups * ceil(m / groups
/// / unitRows) * ceil(cols / unitCols). With one slice `partial` is dw of f32.
/// With `tiles` (one slice, one group) it lies unit by unit, [unit][unitRows][unitCols],
/// and may be chained; what would lie outside dw is not written. Bits as gemm_f32 with k
/// = (image, output) of a slice, denormals as there, and `amx` where a worker has room
/// for images with pads (convWeightGradImageFloats).
struct ConvWeightGradParams {
  ConvGeometry g;
  int64_t sliceImages = 0, slices = 0;
  int64_t unitRows = 0, unitCols = 0;
  int64_t xType = 0, dyType = 0;
  int64_t tiles = 0;
};

/// depthwise_forward_f32: x, w, y; depthwise_input_grad_f32: dy, w, dx. groups == c, m a
/// multiple of c. Units: n * channels of the result (m or c); may be chained. Bits: one
/// fma chain over (m / c and) kernel positions. The input gradient of 16 bits with a
/// stride also takes a workspace of each worker (depthwiseWorkerBytes).
struct DepthwiseParams {
  ConvGeometry g;
  int64_t sourceType = 0, wType = 0, resultType = 0; ///< of x, w, y or dy, w, dx
};

/// depthwise_weight_grad_f32: x, dy, dw. Units: m. Bits: per element 16 chains over the
/// columns of a row of dy (lane w mod 16), rows and images in order, then lanes added by
/// halves.
struct DepthwiseWeightGradParams {
  ConvGeometry g;
  int64_t xType = 0, dyType = 0, dwType = 0;
};

int64_t convForwardUnits(const ConvParams &p);
int64_t convInputGradUnits(const ConvParams &p);
int64_t convForwardWorkerBytes(const ConvParams &p);
int64_t convInputGradWorkerBytes(const ConvParams &p);
int64_t convWeightGradUnits(const ConvWeightGradParams &p);
int64_t convWeightGradWorkerBytes(const ConvWeightGradParams &p);
int64_t convPartialBytes(const ConvWeightGradParams &p);
/// 0 where the kernel takes no workspace.
int64_t depthwiseWorkerBytes(const DepthwiseParams &p, bool inputGrad);

/// Floats of the workspace for the images with their pads that a block of 256 outputs may
/// touch, by one unit; -1 where they are gathered.
int64_t convWeightGradImageFloats(const ConvWeightGradParams &p);

/// Depthwise kernels apply: groups == c and m a multiple of c.
bool canBeDepthwise(const ConvGeometry &g);
/// They are what to launch: they apply and groups are too small to fill the tiles of a
/// product.
bool isDepthwise(const ConvGeometry &g);
constexpr int64_t convUnitImages(const ConvParams &p) {
  return p.unitImages > 1 ? p.unitImages : 1;
}
/// Units from the shape alone.
ConvParams planConvForward(const ConvGeometry &g, int64_t sourceType, int64_t wType,
                           int64_t resultType);
ConvParams planConvInputGrad(const ConvGeometry &g, int64_t sourceType, int64_t wType,
                             int64_t resultType);
/// Slices and unit sizes from the shape alone.
ConvWeightGradParams planConvWeightGrad(const ConvGeometry &g);

} // namespace sluice
