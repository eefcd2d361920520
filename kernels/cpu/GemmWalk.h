#pragma once
// The rows and columns of C that units of a product stand for.

#include "kernels/GemmParams.h"
#include "kernels/cpu/Vector.h"

namespace sluice::SLUICE_LEVEL {

/// With `cTiles`, how many elements behind the place that strides give them the elements
/// of C lie in the unit that begins with row `first` and column `j0`.
SLUICE_INLINE int64_t shiftOfTile(const GemmParams &p, int64_t first, int64_t j0) {
  if (!p.cTiles)
    return 0;
  int64_t unit = first / p.unitRows * ceilDiv(p.n, p.unitCols) + j0 / p.unitCols;
  return unit * p.unitRows * p.unitCols - first * p.cRow - j0;
}

/// Calls body(first, last, j0, j1) for rows [first, last) of the flattened (b0, b1, m)
/// and columns [j0, j1).
template <typename Body>
SLUICE_INLINE void walkUnits(const GemmParams &p, int64_t begin, int64_t end, Body body) {
  int64_t rows = p.batch0 * p.batch1 * p.m;
  if (p.unitCols == 0)
    return body(begin * p.unitRows, least(end * p.unitRows, rows), int64_t{0}, p.n);
  int64_t blocks = ceilDiv(p.n, p.unitCols);
  for (int64_t u = begin; u < end; ++u) {
    int64_t r = u / blocks * p.unitRows, j = u % blocks * p.unitCols;
    body(r, least(r + p.unitRows, rows), j, least(j + p.unitCols, p.n));
  }
}

/// Calls body(part, slice, first, last, j0, j1): the product `part` of the run `slice` of
/// k, whose C is partial[slice].
template <typename Body>
SLUICE_INLINE void walkSlices(const GemmSplitKParams &p, int64_t begin, int64_t end,
                              Body body) {
  GemmParams part;
  part.m = p.m, part.n = p.n;
  part.aRow = p.aRow, part.aCol = p.aCol, part.bRow = p.bRow, part.bCol = p.bCol;
  part.aType = p.aType, part.bType = p.bType;
  part.cRow = p.n;
  int64_t rowBlocks = ceilDiv(p.m, p.unitRows);
  int64_t colBlocks = p.unitCols ? ceilDiv(p.n, p.unitCols) : 1;
  int64_t unitCols = p.unitCols ? p.unitCols : p.n;
  for (int64_t u = begin; u < end; ++u) {
    int64_t slice = u / (rowBlocks * colBlocks);
    int64_t i = u / colBlocks % rowBlocks * p.unitRows, j = u % colBlocks * unitCols;
    part.k = least(p.sliceK, p.k - slice * p.sliceK);
    body(part, slice, i, least(i + p.unitRows, p.m), j, least(j + unitCols, p.n));
  }
}

} // namespace sluice::SLUICE_LEVEL
