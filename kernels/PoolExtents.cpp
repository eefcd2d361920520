#include "kernels/MoveExtents.h"
#include "kernels/Params.h"

namespace sluice::extent {
namespace {

constexpr int64_t kFloat = 4;
constexpr int64_t kMaxSize = int64_t{1} << 30;
constexpr int64_t kMaxPositions = int64_t{1} << 22;

struct Sizes {
  int64_t xPlane, yPlane; ///< elements
};

/// Planes of `elements` each, chainable.
struct Planes {
  int64_t bytes, unitBytes;
  Planes(const PoolParams &p, int64_t elements, int64_t type)
      : bytes(product({p.planes, elements, formatBytes(type)})),
        unitBytes(product({elements, formatBytes(type)})) {}
};

bool checkPool(const PoolParams &p, Extents &e, Sizes &s) {
  for (int d = 0; d < 3; ++d) {
    for (int64_t v : {p.in[d], p.out[d], p.pad[d], p.padEnd[d]})
      if (v < 0 || v > kMaxSize)
        return e.refuse("spatial sizes and pads must be between 0 and 2^30");
    for (int64_t v : {p.kernel[d], p.stride[d], p.dilation[d]})
      if (v < 1 || v > kMaxSize)
        return e.refuse("kernel, strides and dilations must be between 1 and 2^30");
    // Rounding up lets a window start less than a stride before it would fit.
    if (p.out[d] > 0 && (p.kernel[d] - 1) * p.dilation[d] >=
                            p.in[d] + p.pad[d] + p.padEnd[d] + p.stride[d])
      return e.refuse("the kernel must fit into x with its pads");
  }
  // No operand bounds the kernel, and its positions are walked: refuse what would run for
  // ever.
  int64_t positions = product({p.kernel[0], p.kernel[1], p.kernel[2]});
  if (positions < 0 || positions > kMaxPositions)
    return e.refuse("the kernel must have at most 2^22 positions");
  if (!isFlag(p.countIncludePad))
    return e.refuse("'countIncludePad' must be 0 or 1");
  if (!isFormat(p.sourceType) || !isFormat(p.dyType) || !isFormat(p.resultType))
    return e.refuse("types must be 0 (f32), 1 (bf16) or 2 (f16)");
  s.xPlane = product({p.in[0], p.in[1], p.in[2]});
  s.yPlane = product({p.out[0], p.out[1], p.out[2]});
  if (product({p.planes, s.xPlane, kFloat}) < 0 ||
      product({p.planes, s.yPlane, kFloat}) < 0)
    return e.refuse("operands must be at most 2^50 bytes");
  return true;
}

void input(Extents &e, const Planes &planes) { e.input(planes.bytes, planes.unitBytes); }
void output(Extents &e, const Planes &planes) {
  e.output(planes.bytes, planes.unitBytes);
}
void gradient(const PoolParams &p, int64_t elements, Extents &e) {
  output(e, {p, elements, p.resultType});
  if (int64_t bytes = poolGradWorkerBytes(p))
    e.workspace(bytes);
}

bool describePool(const int64_t *params, int64_t units, Extents &e) {
  auto p = unpackParams<PoolParams>(params);
  Sizes s;
  if (!checkPool(p, e, s))
    return false;
  input(e, {p, s.xPlane, p.sourceType});
  output(e, {p, s.yPlane, p.resultType});
  return e.done(units, p.planes);
}

} // namespace

bool describeMaxPool(const int64_t *params, int64_t units, Extents &e) {
  return describePool(params, units, e);
}

bool describeAvgPool(const int64_t *params, int64_t units, Extents &e) {
  return describePool(params, units, e);
}

bool describeMaxPoolGrad(const int64_t *params, int64_t units, Extents &e) {
  auto p = unpackParams<PoolParams>(params);
  Sizes s;
  if (!checkPool(p, e, s))
    return false;
  input(e, {p, s.xPlane, p.sourceType});
  input(e, {p, s.yPlane, p.dyType});
  gradient(p, s.xPlane, e);
  return e.done(units, p.planes);
}

bool describeAvgPoolGrad(const int64_t *params, int64_t units, Extents &e) {
  auto p = unpackParams<PoolParams>(params);
  Sizes s;
  if (!checkPool(p, e, s))
    return false;
  input(e, {p, s.yPlane, p.sourceType});
  gradient(p, s.xPlane, e);
  return e.done(units, p.planes);
}

} // namespace sluice::extent
