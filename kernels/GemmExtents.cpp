#include "kernels/GemmExtents.h"
#include "kernels/Params.h"
#include "kernels/StoredFormats.h"

#include <algorithm>

namespace sluice::extent {
namespace {

constexpr int64_t kFloat = 4;
constexpr const char *kTypes = "types must be 0 (f32), 1 (bf16) or 2 (f16)";

/// Whether row (b0, b1, m) lies at ((b0 * batch1 + b1) * m + i) * row.
bool evenRows(const GemmParams &p, int64_t batch0, int64_t batch1, int64_t row) {
  return (p.batch1 == 1 || Wide(batch1) == Wide(p.m) * row) &&
         (p.batch0 == 1 || Wide(batch0) == Wide(p.batch1) * p.m * row);
}

/// Blocks of a coded tensor; 0 where it has none that are whole.
int64_t blockCount(const CodedAs &as, const FormatTraits &traits) {
  if (as.count < 1 || as.columns < 1 || as.count % as.columns != 0 ||
      (traits.bits == 4 && as.count % 2 != 0))
    return 0;
  if (traits.blockColumns == 0)
    return 1;
  int64_t rows = traits.blockRows == 1 ? 1 : as.count / as.columns;
  int64_t columns = traits.blockRows == 1 ? as.count : as.columns;
  int64_t down = std::min(rows, traits.blockRows);
  int64_t across = std::min(columns, traits.blockColumns);
  return rows % down || columns % across ? 0 : rows / down * (columns / across);
}

const FormatTraits *codeTraits(const CodedAs &as) {
  if (as.format < int64_t(StoredFormat::e4m3) || as.format >= storedFormatCount)
    return nullptr;
  return &traitsOf(static_cast<StoredFormat>(as.format));
}

/// `elements`: how many of the tensor the product reaches.
bool checkCodes(const CodedAs &as, int64_t type, int64_t elements, Extents &e) {
  if (as.format == 0)
    return true;
  const FormatTraits *traits = codeTraits(as);
  if (!traits)
    return e.refuse("codes must be of a format of 8 or 4 bits");
  if (type != format::kF32 && type != format::kBf16)
    return e.refuse("codes must be decoded to f32 or bf16");
  if (!isCount(as.count) || blockCount(as, *traits) == 0)
    return e.refuse("a tensor of codes must have whole blocks");
  if (elements < 0 || elements > as.count)
    return e.refuse("the product reaches beyond the tensor of codes");
  return true;
}

int64_t codeBytes(const CodedAs &as) { return as.count / (8 / codeTraits(as)->bits); }

/// The operands behind B.
void describeScales(const CodedAs &as, Extents &e) {
  if (as.format == 0)
    return;
  const FormatTraits &traits = *codeTraits(as);
  e.input(blockCount(as, traits) * (traits.scale == ScaleKind::real ? kFloat : 1));
  if (traits.scale == ScaleKind::twoLevel)
    e.input(kFloat);
}

bool checkProduct(const GemmParams &p, Extents &e) {
  if (!areCounts({p.m, p.n, p.k, p.batch0, p.batch1}) ||
      product({p.batch0, p.batch1, p.m, p.n + 1}) < 0 || product({p.m, p.k}) < 0 ||
      product({p.n, p.k}) < 0)
    return e.refuse("sizes must be at least 0 and their products at most 2^50");
  if (!areStrides({p.aBatch0, p.aBatch1, p.aRow, p.aCol, p.bBatch0, p.bBatch1, p.bRow,
                   p.bCol, p.cBatch0, p.cBatch1, p.cRow}))
    return e.refuse("strides must be between 0 and 2^40");
  if (p.unitRows < 1 || !isCount(p.unitRows))
    return e.refuse("'unitRows' must be between 1 and 2^40");
  if (!isCount(p.unitCols) || p.unitCols % gemm::kTileCols != 0)
    return e.refuse("'unitCols' must be a multiple of 32");
  if (!isFlag(p.accumulate))
    return e.refuse("'accumulate' must be 0 or 1");
  if (!isFormat(p.aType) || !isFormat(p.bType) || !isFormat(p.cType))
    return e.refuse(kTypes);
  if (p.k > 1 && p.aCol == 0 && p.bRow == 0)
    return e.refuse("'aCol' and 'bRow' must not both be 0");
  if (!isFlag(p.cTiles) || (p.cTiles && (p.batch0 != 1 || p.batch1 != 1 ||
                                         p.unitCols == 0 || p.cRow != p.unitCols)))
    return e.refuse("'cTiles' must be 0, or 1 for one matrix with 'cRow' == 'unitCols'");
  if (!p.cTiles &&
      !areDistinct(
          {{p.batch0, p.cBatch0}, {p.batch1, p.cBatch1}, {p.m, p.cRow}, {p.n, 1}}))
    return e.refuse("elements of C overlap");
  return checkCodes(p.aCodes, p.aType,
                    reach({{p.batch0, p.aBatch0},
                           {p.batch1, p.aBatch1},
                           {p.m, p.aRow},
                           {p.k, p.aCol}},
                          1),
                    e) &&
         checkCodes(p.bCodes, p.bType,
                    reach({{p.batch0, p.bBatch0},
                           {p.batch1, p.bBatch1},
                           {p.k, p.bRow},
                           {p.n, p.bCol}},
                          1),
                    e);
}

bool describeProduct(const int64_t *params, int64_t units, Extents &e, bool packed) {
  auto p = unpackParams<GemmParams>(params);
  if (!checkProduct(p, e))
    return false;
  if (packed && p.bType != format::kF32 && !usesPairs(p.aType, p.bType))
    return e.refuse("a packed B must be f32, or bf16 where A is");
  if (packed && p.bCodes.format != 0)
    return e.refuse("a packed B must not be codes");
  int64_t aBytes = formatBytes(p.aType), cBytes = formatBytes(p.cType);
  bool rows = p.unitCols == 0;
  bool chainA = rows && evenRows(p, p.aBatch0, p.aBatch1, p.aRow) &&
                Wide(p.k - 1) * p.aCol < Wide(p.aRow);
  bool chainC = rows && evenRows(p, p.cBatch0, p.cBatch1, p.cRow) && p.n <= p.cRow;
  if (p.aCodes.format)
    e.input(codeBytes(p.aCodes));
  else
    e.input(
        reach(
            {{p.batch0, p.aBatch0}, {p.batch1, p.aBatch1}, {p.m, p.aRow}, {p.k, p.aCol}},
            aBytes),
        chainA ? product({p.unitRows, p.aRow, aBytes}) : 0);
  Dim batch0{p.batch0, p.bBatch0}, batch1{p.batch1, p.bBatch1};
  int64_t panels = (p.n + gemm::kTileCols - 1) / gemm::kTileCols;
  if (p.bCodes.format)
    e.input(codeBytes(p.bCodes));
  else
    e.input(packed ? reach({batch0, batch1, {product({panels, gemm::kTileCols, p.k}), 1}},
                           kFloat)
                   : reach({batch0, batch1, {p.k, p.bRow}, {p.n, p.bCol}},
                           formatBytes(p.bType)));
  describeScales(p.aCodes, e);
  describeScales(p.bCodes, e);
  int64_t tile = product({p.unitRows, p.unitCols, cBytes});
  if (p.cTiles)
    e.output(product({gemmUnits(p), p.unitRows, p.unitCols, cBytes}), tile);
  else
    e.output(
        reach({{p.batch0, p.cBatch0}, {p.batch1, p.cBatch1}, {p.m, p.cRow}, {p.n, 1}},
              cBytes),
        chainC ? product({p.unitRows, p.cRow, cBytes}) : 0);
  e.workspace(gemmWorkerBytes(p));
  return e.done(units, gemmUnits(p));
}

} // namespace

bool describeGemm(const int64_t *params, int64_t units, Extents &e) {
  return describeProduct(params, units, e, false);
}

bool describeGemmPacked(const int64_t *params, int64_t units, Extents &e) {
  return describeProduct(params, units, e, true);
}

bool describeGemmPackB(const int64_t *params, int64_t units, Extents &e) {
  auto p = unpackParams<GemmPackBParams>(params);
  if (!areCounts({p.n, p.k, p.batch0, p.batch1}) ||
      product({p.batch0, p.batch1, p.n + gemm::kTileCols, p.k + 1, kFloat}) < 0)
    return e.refuse("sizes must be at least 0 and their products at most 2^50");
  if (!areStrides({p.bBatch0, p.bBatch1, p.bRow, p.bCol}))
    return e.refuse("strides must be between 0 and 2^40");
  if (!isFormat(p.aType) || !isFormat(p.bType))
    return e.refuse(kTypes);
  e.input(
      reach({{p.batch0, p.bBatch0}, {p.batch1, p.bBatch1}, {p.k, p.bRow}, {p.n, p.bCol}},
            formatBytes(p.bType)));
  e.output(gemmPackedBytes(p), product({p.k, gemm::kTileCols, kFloat}));
  return e.done(units, gemmPackBUnits(p));
}

bool describeGemmSplitK(const int64_t *params, int64_t units, Extents &e) {
  auto p = unpackParams<GemmSplitKParams>(params);
  GemmParams whole;
  whole.m = p.m, whole.n = p.n, whole.k = p.k;
  whole.aRow = p.aRow, whole.aCol = p.aCol, whole.bRow = p.bRow, whole.bCol = p.bCol;
  whole.aType = p.aType, whole.bType = p.bType;
  whole.aCodes = p.aCodes, whole.bCodes = p.bCodes;
  whole.cRow = p.n, whole.unitRows = p.unitRows, whole.unitCols = p.unitCols;
  if (!checkProduct(whole, e))
    return false;
  if (p.sliceK < 1 || !isCount(p.sliceK) || p.sliceK % gemm::kBlockK != 0)
    return e.refuse("'sliceK' must be a multiple of 256 above 0");
  if (p.slices != (p.k + p.sliceK - 1) / p.sliceK)
    return e.refuse("'slices' must be k / sliceK, rounded up");
  if (product({p.slices, p.m + 1, p.n + 1, kFloat}) < 0)
    return e.refuse("the partial results must be at most 2^50 bytes");
  e.input(p.aCodes.format ? codeBytes(p.aCodes)
                          : reach({{p.m, p.aRow}, {p.k, p.aCol}}, formatBytes(p.aType)));
  e.input(p.bCodes.format ? codeBytes(p.bCodes)
                          : reach({{p.k, p.bRow}, {p.n, p.bCol}}, formatBytes(p.bType)));
  describeScales(p.aCodes, e);
  describeScales(p.bCodes, e);
  e.output(gemmPartialBytes(p));
  e.workspace(gemmSplitKWorkerBytes(p));
  return e.done(units, gemmSplitKUnits(p));
}

bool describeSumSlices(const int64_t *params, int64_t units, Extents &e) {
  auto p = unpackParams<SumSlicesParams>(params);
  if (!areCounts({p.rows, p.cols, p.slices, p.cRow, p.unitRows}) || p.unitRows < 1)
    return e.refuse("sizes must be at least 0 and 'unitRows' at least 1");
  if (!isFlag(p.accumulate))
    return e.refuse("'accumulate' must be 0 or 1");
  if (!isFormat(p.cType))
    return e.refuse(kTypes);
  if (!areDistinct({{p.rows, p.cRow}, {p.cols, 1}}))
    return e.refuse("elements of C overlap");
  if (product({p.rows, p.cols}) < 0)
    return e.refuse("sizes must have a product of at most 2^50");
  e.input(product({p.slices, p.rows, p.cols, kFloat}));
  int64_t cBytes = formatBytes(p.cType);
  e.output(reach({{p.rows, p.cRow}, {p.cols, 1}}, cBytes),
           p.cols <= p.cRow ? product({p.unitRows, p.cRow, cBytes}) : 0);
  return e.done(units, sumSlicesUnits(p));
}

} // namespace sluice::extent
