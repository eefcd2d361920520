// Units of the pooling and data movement kernels, and the order of dims of a copy. All
// from shapes.

#include "kernels/MoveParams.h"
#include "kernels/PoolParams.h"

#include <algorithm>
#include <cstdlib>

namespace sluice {
namespace {

constexpr int64_t kUnitElements = 16384;

int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct CopyDim {
  int64_t size, in, out;
};

/// Outermost first in the result; where that does not tell, in the source.
bool isOuter(const CopyDim &a, const CopyDim &b) {
  int64_t ao = std::abs(a.out), bo = std::abs(b.out);
  return ao != bo ? ao > bo : std::abs(a.in) > std::abs(b.in);
}

/// Drops dims of size 1 and joins neighbours that are one run on both sides. Returns the
/// rank left.
int64_t simplify(CopyDim *dims, int64_t rank) {
  rank = std::remove_if(dims, dims + rank, [](const CopyDim &d) { return d.size == 1; }) -
         dims;
  for (int64_t i = 1; i < rank; ++i)
    for (int64_t j = i; j > 0 && isOuter(dims[j], dims[j - 1]); --j)
      std::swap(dims[j], dims[j - 1]);
  int64_t n = 0;
  for (int64_t i = 0; i < rank; ++i) {
    CopyDim &outer = dims[n - (n > 0)];
    const CopyDim &inner = dims[i];
    if (n > 0 && outer.in == inner.in * inner.size && outer.out == inner.out * inner.size)
      outer = {outer.size * inner.size, inner.in, inner.out};
    else
      dims[n++] = inner;
  }
  return n;
}

/// The dim that is contiguous in the source becomes the rows of the block, if it is not
/// its columns.
void chooseRows(CopyDim *dims, int64_t rank) {
  if (rank < 3 || std::abs(dims[rank - 1].in) <= 1)
    return;
  int64_t best = rank - 2;
  for (int64_t i = 0; i < rank - 1; ++i)
    if (dims[i].in != 0 && std::abs(dims[i].in) < std::abs(dims[best].in))
      best = i;
  std::rotate(dims + best, dims + best + 1, dims + rank - 1);
}

} // namespace

CopyParams planCopy(int64_t elementBytes, int64_t rank, const int64_t *dims,
                    const int64_t *inStride, int64_t inOffset, const int64_t *outStride,
                    int64_t outOffset) {
  CopyDim d[kMaxRank];
  for (int64_t i = 0; i < rank; ++i)
    d[i] = {dims[i], inStride[i], outStride[i]};
  rank = simplify(d, rank);
  chooseRows(d, rank);
  CopyParams p;
  p.elementBytes = elementBytes;
  p.inOffset = inOffset, p.outOffset = outOffset;
  for (int64_t i = 0; i < rank; ++i) {
    int64_t at = kMaxRank - rank + i;
    p.dims[at] = d[i].size, p.inStride[at] = d[i].in, p.outStride[at] = d[i].out;
  }
  int64_t rows = p.dims[kMaxRank - 2], cols = p.dims[kMaxRank - 1];
  p.unitCols = std::clamp<int64_t>(cols, 1, kUnitElements);
  p.unitRows = std::clamp<int64_t>(rows, 1, ceilDiv(kUnitElements / p.unitCols, 16) * 16);
  return p;
}

int64_t copyUnits(const CopyParams &p) {
  int64_t units = ceilDiv(p.dims[kMaxRank - 2], p.unitRows) *
                  ceilDiv(p.dims[kMaxRank - 1], p.unitCols);
  for (int64_t d = 0; d < kMaxRank - 2; ++d)
    units *= p.dims[d];
  return units;
}

int64_t fillUnits(const FillParams &p) { return ceilDiv(p.count, p.unitElements); }
int64_t gatherUnits(const GatherParams &p) {
  return ceilDiv(p.outer * p.count, p.unitRows);
}

int64_t gatherElementsUnits(const GatherElementsParams &p) {
  int64_t lines = 1;
  for (int64_t d = 0; d < kMaxRank - 1; ++d)
    lines *= p.dims[d];
  return ceilDiv(lines, p.unitRows);
}

int64_t scatterAddUnits(const ScatterAddParams &p) {
  if (p.unitRows > 0)
    return p.outer * ceilDiv(p.axis, p.unitRows);
  return p.outer * ceilDiv(p.inner, p.unitCols);
}

int64_t scatterElementsUnits(const ScatterElementsParams &p) {
  int64_t lines = 1;
  for (int64_t d = 0; d < kMaxRank; ++d)
    lines *= d == p.axis ? 1 : p.dims[d];
  return lines;
}

int64_t argReduceUnits(const ArgReduceParams &p) {
  return ceilDiv(p.outer * p.inner, p.unitElements);
}
int64_t cumsumUnits(const CumsumParams &p) {
  return ceilDiv(p.outer * p.inner, p.unitLines);
}

int64_t gatherUnitRows(const GatherParams &p) {
  return std::max<int64_t>(1, kUnitElements / std::max<int64_t>(1, p.inner));
}
int64_t gatherElementsUnitRows(const GatherElementsParams &p) {
  return std::max<int64_t>(1, kUnitElements / std::max<int64_t>(1, p.dims[kMaxRank - 1]));
}
int64_t scatterAddUnitCols(const ScatterAddParams &p) {
  // At least a line, and some sixteen units.
  return std::max<int64_t>(16, ceilDiv(ceilDiv(p.inner, 16), 16) * 16);
}
int64_t scatterAddUnitRows(const ScatterAddParams &p) {
  // Each unit looks through all indices: some thirty-two of them.
  return p.axis > 2 * p.count ? ceilDiv(p.axis, 32) : 0;
}
int64_t argReduceUnitElements(const ArgReduceParams &p) {
  return std::max<int64_t>(1, kUnitElements / std::max<int64_t>(1, p.size));
}
int64_t cumsumUnitLines(const CumsumParams &p) {
  return std::max<int64_t>(1, kUnitElements / std::max<int64_t>(1, p.size));
}

int64_t poolGradWorkerBytes(const PoolParams &p) {
  return p.resultType == format::kF32 ? 0 : p.in[0] * p.in[1] * p.in[2] * 4;
}

int64_t poolChunk(const PoolParams &p) {
  int64_t plane = std::max<int64_t>(1, p.in[0] * p.in[1] * p.in[2]);
  return std::max<int64_t>(1, 2 * kUnitElements / plane);
}

} // namespace sluice
