#include "kernels/MoveExtents.h"
#include "kernels/Params.h"

namespace sluice::extent {
namespace {

bool isElement(int64_t bytes) {
  return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
}
bool isIndex(int64_t bytes) { return bytes == 4 || bytes == 8; }

int64_t product8(const int64_t (&d)[kMaxRank], int64_t elementBytes) {
  return product({d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7], elementBytes});
}

/// Bytes reached over `dims` with `axisSize` elements along `axis`.
int64_t reachAlong(const int64_t (&dims)[kMaxRank], const int64_t (&strides)[kMaxRank],
                   int64_t axis, int64_t axisSize, int64_t elementBytes) {
  Dim d[kMaxRank];
  for (int64_t i = 0; i < kMaxRank; ++i)
    d[i] = {i == axis ? axisSize : dims[i], strides[i]};
  return reach(d, kMaxRank, 0, elementBytes);
}

constexpr const char *kElementError = "'elementBytes' must be 1, 2, 4 or 8";
constexpr const char *kIndexError = "'indexBytes' must be 4 or 8";
constexpr const char *kUnitError = "the unit size must be between 1 and 2^40";
constexpr const char *kSizeError =
    "sizes must be at least 0 and their product at most 2^50";

bool isUnit(int64_t n) { return n >= 1 && isCount(n); }

} // namespace

bool describeCopy(const int64_t *params, int64_t units, Extents &e) {
  auto p = unpackParams<CopyParams>(params);
  if (!isElement(p.elementBytes))
    return e.refuse(kElementError);
  if (!isUnit(p.unitRows) || !isUnit(p.unitCols))
    return e.refuse(kUnitError);
  if (product8(p.dims, p.elementBytes) < 0)
    return e.refuse(kSizeError);
  if (p.inOffset > kMaxBytes || p.inOffset < -kMaxBytes || p.outOffset > kMaxBytes ||
      p.outOffset < -kMaxBytes)
    return e.refuse("offsets must be at most 2^50");
  Dim in[kMaxRank], out[kMaxRank];
  for (int64_t i = 0; i < kMaxRank; ++i) {
    in[i] = {p.dims[i], p.inStride[i]};
    out[i] = {p.dims[i], p.outStride[i]};
  }
  if (!areDistinct(out, kMaxRank))
    return e.refuse("elements of the result overlap");
  e.input(reach(in, kMaxRank, p.inOffset, p.elementBytes));
  e.output(reach(out, kMaxRank, p.outOffset, p.elementBytes));
  return e.done(units, copyUnits(p));
}

bool describeFill(const int64_t *params, int64_t units, Extents &e) {
  auto p = unpackParams<FillParams>(params);
  if (!isElement(p.elementBytes))
    return e.refuse(kElementError);
  if (!isUnit(p.unitElements) || !isCount(p.count))
    return e.refuse(kUnitError);
  e.output(product({p.count, p.elementBytes}), product({p.unitElements, p.elementBytes}));
  return e.done(units, fillUnits(p));
}

bool describeGather(const int64_t *params, int64_t units, Extents &e) {
  auto p = unpackParams<GatherParams>(params);
  if (!isElement(p.elementBytes))
    return e.refuse(kElementError);
  if (!isIndex(p.indexBytes))
    return e.refuse(kIndexError);
  if (!isUnit(p.unitRows))
    return e.refuse(kUnitError);
  if (product({p.outer, p.count}) < 0)
    return e.refuse(kSizeError);
  e.input(product({p.outer, p.axis, p.inner, p.elementBytes}));
  e.input(product({p.count, p.indexBytes}));
  e.output(product({p.outer, p.count, p.inner, p.elementBytes}),
           product({p.unitRows, p.inner, p.elementBytes}));
  return e.done(units, gatherUnits(p));
}

bool describeGatherElements(const int64_t *params, int64_t units, Extents &e) {
  auto p = unpackParams<GatherElementsParams>(params);
  if (!isElement(p.elementBytes))
    return e.refuse(kElementError);
  if (!isIndex(p.indexBytes))
    return e.refuse(kIndexError);
  if (!isUnit(p.unitRows))
    return e.refuse(kUnitError);
  if (p.axis < 0 || p.axis >= kMaxRank || !isCount(p.axisSize))
    return e.refuse("'axis' must be between 0 and 7");
  if (product8(p.dims, 8) < 0)
    return e.refuse(kSizeError);
  int64_t line = product({p.unitRows, p.dims[kMaxRank - 1]});
  e.input(reachAlong(p.dims, p.xStride, p.axis, p.axisSize, p.elementBytes));
  e.input(product8(p.dims, p.indexBytes), product({line, p.indexBytes}));
  e.output(product8(p.dims, p.elementBytes), product({line, p.elementBytes}));
  return e.done(units, gatherElementsUnits(p));
}

bool describeScatterAdd(const int64_t *params, int64_t units, Extents &e) {
  auto p = unpackParams<ScatterAddParams>(params);
  if (!isIndex(p.indexBytes))
    return e.refuse(kIndexError);
  if (!isUnit(p.unitCols) || (p.unitRows != 0 && !isUnit(p.unitRows)))
    return e.refuse(kUnitError);
  if (!isFlag(p.accumulate))
    return e.refuse("'accumulate' must be 0 or 1");
  if (!isFormat(p.updatesType))
    return e.refuse("types must be 0 (f32), 1 (bf16) or 2 (f16)");
  if (product({p.outer, p.inner, 4}) < 0 || product({p.outer, p.axis, 4}) < 0)
    return e.refuse(kSizeError);
  e.input(product({p.count, p.indexBytes}));
  e.input(product({p.outer, p.count, p.inner, formatBytes(p.updatesType)}));
  bool byRows = p.unitRows > 0 && p.outer == 1;
  e.output(product({p.outer, p.axis, p.inner, 4}),
           byRows ? product({p.unitRows, p.inner, 4}) : 0);
  return e.done(units, scatterAddUnits(p));
}

bool describeScatterElements(const int64_t *params, int64_t units, Extents &e) {
  auto p = unpackParams<ScatterElementsParams>(params);
  if (!isElement(p.elementBytes))
    return e.refuse(kElementError);
  if (!isIndex(p.indexBytes))
    return e.refuse(kIndexError);
  if (p.axis < 0 || p.axis >= kMaxRank || !isCount(p.axisSize))
    return e.refuse("'axis' must be between 0 and 7");
  if (product8(p.dims, 8) < 0)
    return e.refuse(kSizeError);
  e.input(product8(p.dims, p.indexBytes));
  e.input(product8(p.dims, p.elementBytes));
  e.output(reachAlong(p.dims, p.yStride, p.axis, p.axisSize, p.elementBytes));
  return e.done(units, scatterElementsUnits(p));
}

bool describeScatterElementsAdd(const int64_t *params, int64_t units, Extents &e) {
  if (unpackParams<ScatterElementsParams>(params).elementBytes != 4)
    return e.refuse("'elementBytes' must be 4");
  return describeScatterElements(params, units, e);
}

static bool argReduceOf(int64_t bytes, const int64_t *params, int64_t units, Extents &e) {
  auto p = unpackParams<ArgReduceParams>(params);
  if (!isUnit(p.unitElements))
    return e.refuse(kUnitError);
  if (!isFlag(p.minimum) || !isFlag(p.last))
    return e.refuse("'minimum' and 'last' must be 0 or 1");
  if (!areStrides({p.xOuter, p.xAxis, p.xInner}) || product({p.outer, p.inner, 8}) < 0)
    return e.refuse(kSizeError);
  if (p.size < 1 || (p.size > 1 && p.xAxis == 0))
    return e.refuse("'size' and 'xAxis' must be at least 1");
  e.input(reach({{p.outer, p.xOuter}, {p.size, p.xAxis}, {p.inner, p.xInner}}, bytes));
  e.output(product({p.outer, p.inner, 8}), product({p.unitElements, 8}));
  return e.done(units, argReduceUnits(p));
}

bool describeArgReduce(const int64_t *params, int64_t units, Extents &e) {
  return argReduceOf(4, params, units, e);
}

bool describeArgReduceI64(const int64_t *params, int64_t units, Extents &e) {
  return argReduceOf(8, params, units, e);
}

static bool cumsumOf(int64_t element, const int64_t *params, int64_t units, Extents &e) {
  auto p = unpackParams<CumsumParams>(params);
  if (!isUnit(p.unitLines))
    return e.refuse(kUnitError);
  if (!isFlag(p.exclusive) || !isFlag(p.reverse))
    return e.refuse("'exclusive' and 'reverse' must be 0 or 1");
  int64_t bytes = product({p.outer, p.size, p.inner, element});
  if (bytes < 0)
    return e.refuse(kSizeError);
  int64_t unit = p.inner == 1 ? product({p.unitLines, p.size, element}) : 0;
  e.input(bytes, unit);
  e.output(bytes, unit);
  return e.done(units, cumsumUnits(p));
}

bool describeCumsum(const int64_t *params, int64_t units, Extents &e) {
  return cumsumOf(4, params, units, e);
}

bool describeCumsumI64(const int64_t *params, int64_t units, Extents &e) {
  return cumsumOf(8, params, units, e);
}

} // namespace sluice::extent
