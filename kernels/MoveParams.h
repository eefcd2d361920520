#pragma once
// Parameters of the kernels that move data. Elements are of 1, 2, 4 or 8 bytes; strides
// and offsets in elements.

#include "kernels/Formats.h"

#include <cstdint>

namespace sluice {

/// Shapes are aligned at the last dim: unused leading dims are 1, and an axis counts from
/// there.
constexpr int64_t kMaxRank = 8;

/// copy_strided: in, out. out[outOffset + sum i*outStride] = in[inOffset + sum
/// i*inStride] over all indices of `dims` (unused leading dims are 1). Strides may be 0
/// (broadcast) or negative. The last two dims, rows and cols, are the block; a unit is
/// unitRows x unitCols of one outer index, columns the fastest: units = product of the
/// outer dims * ceil(rows / unitRows) * ceil(cols / unitCols). Build by planCopy, which
/// orders dims for the cache; chunks of 1.
struct CopyParams {
  int64_t elementBytes = 4;
  int64_t inOffset = 0, outOffset = 0;
  int64_t dims[kMaxRank] = {1, 1, 1, 1, 1, 1, 1, 1};
  int64_t inStride[kMaxRank] = {}, outStride[kMaxRank] = {};
  int64_t unitRows = 1, unitCols = 1;
};

/// fill: out. out[i] = low elementBytes of `bits`, i < count. Units: ceil(count /
/// unitElements); may be chained.
struct FillParams {
  int64_t elementBytes = 4, bits = 0, count = 0, unitElements = 16384;
};

/// gather: x [outer, axis, inner], indices [count], y [outer, count, inner]. Negative
/// indices count from the end; an index out of range gives zeros. Units: blocks of
/// unitRows of the outer * count rows; may be chained (y).
struct GatherParams {
  int64_t elementBytes = 4, indexBytes = 8;
  int64_t outer = 1, axis = 0, inner = 1, count = 0;
  int64_t unitRows = 1;
};

/// gather_elements: x, indices, y. indices and y contiguous of shape `dims`; x has
/// strides xStride and `axisSize` elements along `axis`. Units: blocks of unitRows lines
/// along the last dim; may be chained.
struct GatherElementsParams {
  int64_t elementBytes = 4, indexBytes = 8;
  int64_t axis = 0, axisSize = 0;
  int64_t dims[kMaxRank] = {1, 1, 1, 1, 1, 1, 1, 1};
  int64_t xStride[kMaxRank] = {};
  int64_t unitRows = 1;
};

/// scatter_add_f32: indices [count], updates [outer, count, inner], y [outer, axis,
/// inner]. y (zeroed first unless `accumulate`) gains updates in the order of indices;
/// indices out of range are skipped. Units: outer * ceil(inner / unitCols), or with
/// unitRows above 0 outer * ceil(axis / unitRows): rows of a table of which few are
/// touched are zeroed in one run; where outer is 1, these may be chained (y).
struct ScatterAddParams {
  int64_t indexBytes = 8;
  int64_t outer = 1, axis = 0, inner = 1, count = 0;
  int64_t accumulate = 0;
  int64_t unitCols = 0;
  int64_t updatesType = 0; ///< how they are stored (Formats.h); added as f32
  int64_t unitRows = 0;
};

/// scatter_elements, scatter_elements_{add,max,min,mul}_f32: indices, updates, y. y
/// already holds the data (copy it first); indices and updates contiguous of shape
/// `dims`; y has strides yStride and `axisSize` elements along `axis`. Along the axis in
/// order, the last write wins. Units: lines along the axis (product of the other dims).
struct ScatterElementsParams {
  int64_t elementBytes = 4, indexBytes = 8;
  int64_t axis = 0, axisSize = 0;
  int64_t dims[kMaxRank] = {1, 1, 1, 1, 1, 1, 1, 1};
  int64_t yStride[kMaxRank] = {};
};

/// arg_reduce_f32, arg_reduce_i64: x, y (i64). Position of the first (or last) maximum or
/// minimum over `size` elements; NaN wins. x[o * xOuter + i * xAxis + j * xInner], y[o *
/// inner + j]. Units: blocks of unitElements of outer * inner; may be chained (y).
struct ArgReduceParams {
  int64_t outer = 1, size = 0, inner = 1;
  int64_t xOuter = 0, xAxis = 0, xInner = 0;
  int64_t minimum = 0, last = 0;
  int64_t unitElements = 1;
};

/// cumsum_f32, cumsum_i64: x, y, both [outer, size, inner]. Units: blocks of unitLines of
/// the outer * inner lines.
struct CumsumParams {
  int64_t outer = 1, size = 0, inner = 1;
  int64_t exclusive = 0, reverse = 0;
  int64_t unitLines = 1;
};

/// A copy over `rank` dims, in any order: merges what is contiguous, orders the dims and
/// picks the unit.
CopyParams planCopy(int64_t elementBytes, int64_t rank, const int64_t *dims,
                    const int64_t *inStride, int64_t inOffset, const int64_t *outStride,
                    int64_t outOffset);

int64_t copyUnits(const CopyParams &p);
int64_t fillUnits(const FillParams &p);
int64_t gatherUnits(const GatherParams &p);
int64_t gatherElementsUnits(const GatherElementsParams &p);
int64_t scatterAddUnits(const ScatterAddParams &p);
int64_t scatterElementsUnits(const ScatterElementsParams &p);
int64_t argReduceUnits(const ArgReduceParams &p);
int64_t cumsumUnits(const CumsumParams &p);

// Unit sizes from the shape alone: about 64 KB of result a unit.
int64_t gatherUnitRows(const GatherParams &p);
int64_t gatherElementsUnitRows(const GatherElementsParams &p);
/// 0: units of columns.
int64_t scatterAddUnitRows(const ScatterAddParams &p);
int64_t scatterAddUnitCols(const ScatterAddParams &p);
int64_t argReduceUnitElements(const ArgReduceParams &p);
int64_t cumsumUnitLines(const CumsumParams &p);

} // namespace sluice
