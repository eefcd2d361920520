#include "kernels/ConvExtents.h"
#include "kernels/Params.h"

#include <algorithm>

namespace sluice::extent {
namespace {

constexpr int64_t kFloat = 4;
constexpr const char *kTypes = "types must be 0 (f32), 1 (bf16) or 2 (f16)";

/// Bytes of an operand of so many bytes as f32, stored as `type`.
int64_t as(int64_t type, int64_t floatBytes) {
  return floatBytes / kFloat * formatBytes(type);
}
// Coordinates are products of two such numbers plus a third: far from overflow.
constexpr int64_t kMaxSize = int64_t{1} << 30;
// The input gradient packs weights by position modulo the stride.
constexpr int64_t kMaxStride = 4096;

struct Sizes {
  int64_t x, w, y; ///< bytes, -1 if too large
  int64_t xPlane, yPlane;
};

bool checkGeometry(const ConvGeometry &g, Extents &e, Sizes &s) {
  if (!areCounts({g.n, g.c, g.m}) || g.groups < 1 || g.c % g.groups || g.m % g.groups)
    return e.refuse("channels must be multiples of 'groups', which must be at least 1");
  for (int d = 0; d < 3; ++d) {
    for (int64_t v : {g.in[d], g.out[d], g.pad[d]})
      if (v < 0 || v > kMaxSize)
        return e.refuse("spatial sizes and pads must be between 0 and 2^30");
    for (int64_t v : {g.kernel[d], g.stride[d], g.dilation[d]})
      if (v < 1 || v > kMaxSize)
        return e.refuse("kernel, strides and dilations must be between 1 and 2^30");
    if (g.stride[d] > kMaxStride)
      return e.refuse("strides must be at most 4096");
  }
  s.xPlane = product({g.in[0], g.in[1], g.in[2], kFloat});
  s.yPlane = product({g.out[0], g.out[1], g.out[2], kFloat});
  s.x = product({g.n, g.c, g.in[0], g.in[1], g.in[2], kFloat});
  s.y = product({g.n, g.m, g.out[0], g.out[1], g.out[2], kFloat});
  // Packing rounds channels up to 12.
  int64_t bound =
      product({g.c + 12, g.m + 12, g.kernel[0], g.kernel[1], g.kernel[2], 2 * kFloat});
  s.w = product({g.m, g.c / g.groups, g.kernel[0], g.kernel[1], g.kernel[2], kFloat});
  if (s.x < 0 || s.y < 0 || s.w < 0 || bound < 0 || s.xPlane < 0 || s.yPlane < 0)
    return e.refuse("operands must be at most 2^50 bytes");
  return true;
}

bool checkDepthwise(const ConvGeometry &g, Extents &e, Sizes &s) {
  if (!checkGeometry(g, e, s))
    return false;
  return canBeDepthwise(g) || e.refuse("'groups' must equal the channels of x");
}

bool describeConv(const int64_t *params, int64_t units, Extents &e, bool grad) {
  auto p = unpackParams<ConvParams>(params);
  Sizes s;
  if (!checkGeometry(p.g, e, s))
    return false;
  int64_t channels = grad ? p.g.c : p.g.m;
  if (p.unitChannels < 1 || channels % p.unitChannels)
    return e.refuse("'unitChannels' must divide the channels of the result");
  if (p.unitImages < 0 || p.unitImages > std::max<int64_t>(p.g.n, 1))
    return e.refuse("'unitImages' must be between 0 and the number of images");
  if (!isFormat(p.sourceType) || !isFormat(p.resultType) || !isFormat(p.wType))
    return e.refuse(kTypes);
  int64_t result = grad ? s.x : s.y, plane = grad ? s.xPlane : s.yPlane;
  int64_t images = convUnitImages(p);
  bool isRun = images == 1 || p.unitChannels == channels; // of the result, in a unit
  e.input(as(p.sourceType, grad ? s.y : s.x));
  e.input(as(p.wType, s.w));
  e.output(as(p.resultType, result),
           isRun ? product({images, p.unitChannels, as(p.resultType, plane)}) : 0);
  e.workspace(grad ? convInputGradWorkerBytes(p) : convForwardWorkerBytes(p));
  return e.done(units, grad ? convInputGradUnits(p) : convForwardUnits(p));
}

} // namespace

bool describeConvForward(const int64_t *params, int64_t units, Extents &e) {
  return describeConv(params, units, e, false);
}

bool describeConvInputGrad(const int64_t *params, int64_t units, Extents &e) {
  return describeConv(params, units, e, true);
}

bool describeConvWeightGrad(const int64_t *params, int64_t units, Extents &e) {
  auto p = unpackParams<ConvWeightGradParams>(params);
  Sizes s;
  if (!checkGeometry(p.g, e, s))
    return false;
  if (p.unitRows < 1 || p.unitRows > gemm::kBlockRows)
    return e.refuse("'unitRows' must be between 1 and 288");
  if (p.unitCols < 1 || !isCount(p.unitCols))
    return e.refuse("'unitCols' must be between 1 and 2^40");
  int64_t needed = p.g.n <= p.sliceImages ? 1
                   : p.sliceImages < 1    ? -1
                                          : (p.g.n + p.sliceImages - 1) / p.sliceImages;
  if (p.slices != needed)
    return e.refuse(
        "'slices' must be the images over 'sliceImages', rounded up, at least 1");
  if (product({p.slices, s.w}) < 0)
    return e.refuse("the partial results must be at most 2^50 bytes");
  if (!isFormat(p.xType) || !isFormat(p.dyType))
    return e.refuse(kTypes);
  if (!isFlag(p.tiles) || (p.tiles && (p.slices != 1 || p.g.groups != 1)))
    return e.refuse("'tiles' must be 0, or 1 for one slice and one group");
  e.input(as(p.xType, s.x));
  e.input(as(p.dyType, s.y));
  if (p.tiles)
    e.output(product({convWeightGradUnits(p), p.unitRows, p.unitCols, 4}),
             product({p.unitRows, p.unitCols, 4}));
  else
    e.output(convPartialBytes(p));
  e.workspace(convWeightGradWorkerBytes(p));
  return e.done(units, convWeightGradUnits(p));
}

static bool describeDepthwise(const int64_t *params, int64_t units, Extents &e,
                              bool inputGrad) {
  auto p = unpackParams<DepthwiseParams>(params);
  Sizes s;
  if (!checkDepthwise(p.g, e, s))
    return false;
  if (!isFormat(p.sourceType) || !isFormat(p.wType) || !isFormat(p.resultType))
    return e.refuse(kTypes);
  e.input(as(p.sourceType, inputGrad ? s.y : s.x));
  e.input(as(p.wType, s.w));
  e.output(as(p.resultType, inputGrad ? s.x : s.y),
           as(p.resultType, inputGrad ? s.xPlane : s.yPlane));
  if (int64_t bytes = depthwiseWorkerBytes(p, inputGrad))
    e.workspace(bytes);
  return e.done(units, p.g.n * (inputGrad ? p.g.c : p.g.m));
}

bool describeDepthwiseForward(const int64_t *params, int64_t units, Extents &e) {
  return describeDepthwise(params, units, e, false);
}

bool describeDepthwiseInputGrad(const int64_t *params, int64_t units, Extents &e) {
  return describeDepthwise(params, units, e, true);
}

bool describeDepthwiseWeightGrad(const int64_t *params, int64_t units, Extents &e) {
  auto p = unpackParams<DepthwiseWeightGradParams>(params);
  Sizes s;
  if (!checkDepthwise(p.g, e, s))
    return false;
  if (!isFormat(p.xType) || !isFormat(p.dyType) || !isFormat(p.dwType))
    return e.refuse(kTypes);
  e.input(as(p.xType, s.x));
  e.input(as(p.dyType, s.y));
  e.output(as(p.dwType, s.w));
  return e.done(units, p.g.m);
}

} // namespace sluice::extent
