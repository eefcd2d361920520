// Sizes of the product kernels and the choice among them. All from shapes.

#include "kernels/GemmParams.h"

#include <algorithm>

namespace sluice {
namespace {

int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t roundUp(int64_t a, int64_t b) { return ceilDiv(a, b) * b; }

int64_t blockCount(int64_t n, int64_t block) { return block ? ceilDiv(n, block) : 1; }

/// A packed block of A and one panel of B.
int64_t workerBytes(int64_t m, int64_t k) {
  int64_t rows = roundUp(std::min(m, gemm::kBlockRows), gemm::kTileRows);
  int64_t depth = std::min(k, gemm::kBlockK);
  return (rows * depth + gemm::kBlockK * gemm::kTileCols) * int64_t{4};
}

/// Batches that share B and whose rows of A and C are evenly spaced are more rows.
GemmParams mergeBatches(GemmParams p) {
  auto mergeInner = [&p] {
    if (p.batch1 == 1) {
      p.batch1 = p.batch0, p.batch0 = 1;
      p.aBatch1 = p.aBatch0, p.bBatch1 = p.bBatch0, p.cBatch1 = p.cBatch0;
      p.aBatch0 = p.bBatch0 = p.cBatch0 = 0;
    }
    if (p.batch1 > 1 && p.bBatch1 == 0 && p.aBatch1 == p.m * p.aRow &&
        p.cBatch1 == p.m * p.cRow) {
      p.m *= p.batch1;
      p.batch1 = 1;
      p.aBatch1 = p.cBatch1 = 0;
    }
  };
  mergeInner();
  mergeInner();
  return p;
}

/// Rows of a unit when units are whole rows: a few tiles, or whole small matrices.
int64_t rowsPerUnit(const GemmParams &p) {
  int64_t batches = p.batch0 * p.batch1;
  if (batches > 1 && p.m <= 96)
    return p.m < 12 && p.m > 0 ? p.m * ceilDiv(12, p.m) : std::max<int64_t>(p.m, 1);
  if (batches > 1)
    for (int64_t d = 96; d >= 48; --d)
      if (p.m % d == 0)
        return d;
  return std::clamp<int64_t>(roundUp(ceilDiv(p.m * batches, 8), 12), 12, 48);
}

/// B this large is not packed as a whole: 32 MB.
constexpr int64_t kMaxPacked = int64_t{1} << 23;

/// Chunks of up to 288 rows whose C stays in cache, but enough of them to share out.
/// Where B is packed by each chunk again, they are few and large.
int64_t rowChunk(const GemmParams &p, int64_t units) {
  int64_t rows = gemm::kBlockRows, chunks = 2;
  if (p.n * p.k <= kMaxPacked) {
    rows = std::min(rows, (int64_t{1} << 18) / std::max<int64_t>(p.n, 1));
    chunks = 8;
  }
  return std::max<int64_t>(1, std::min(rows / p.unitRows, units / chunks));
}

/// How many units keep `threads` busy; 0: many.
int64_t enoughUnits(int64_t threads) {
  return threads == 0 ? 16 : threads == 1 ? 1 : std::min<int64_t>(16, 4 * threads);
}

/// A long sum reads rows of A that lie far apart again for each block of columns (the
/// gradient of a layer before a large vocabulary took 35% longer in blocks of 128): there
/// are no more of these than the threads need. Bits do not depend on them.
constexpr int64_t kLongSum = 2048;

void useBlocks(GemmParams &p, int64_t threads) {
  int64_t batches = p.batch0 * p.batch1;
  p.unitRows = std::max<int64_t>(
      12,
      roundUp(ceilDiv(p.m, std::max<int64_t>(1, ceilDiv(p.m, gemm::kBlockRows))), 12));
  if (batches > 1)
    p.unitRows = std::clamp<int64_t>(p.m, 1, p.unitRows);
  // On tiles packing A again for each block of columns weighs more.
  int64_t leastCols = usesPairs(p.aType, p.bType) ? 128 : 64;
  p.unitCols = 512;
  int64_t enough = enoughUnits(p.k >= kLongSum ? threads : 0);
  while (gemmUnits(p) < enough && p.unitCols > leastCols)
    p.unitCols /= 2;
  while (gemmUnits(p) < std::min<int64_t>(8, enough) && p.unitRows > 48)
    p.unitRows = roundUp(p.unitRows / 2, 12);
  if (p.n <= p.unitCols)
    p.unitCols = 0;
}

bool wantsSplitK(const GemmParams &p) {
  return p.batch0 * p.batch1 == 1 && p.k >= 4096 && p.m * p.n <= 16 * 24 * 64;
}

void planSplitK(GemmPlan &plan, const GemmParams &p) {
  plan.kind = GemmPlan::SplitK;
  GemmSplitKParams &s = plan.split;
  s.m = p.m, s.n = p.n, s.k = p.k;
  s.aRow = p.aRow, s.aCol = p.aCol, s.bRow = p.bRow, s.bCol = p.bCol;
  s.aType = p.aType, s.bType = p.bType;
  s.aCodes = p.aCodes, s.bCodes = p.bCodes;
  int64_t wanted = std::min<int64_t>(16, p.k / 2048);
  s.sliceK = roundUp(ceilDiv(p.k, wanted), gemm::kBlockK);
  s.slices = ceilDiv(p.k, s.sliceK);
  s.unitRows = gemm::kBlockRows;
  plan.splitUnits = gemmSplitKUnits(s);
  plan.workerBytes = gemmSplitKWorkerBytes(s);
  plan.partialBytes = gemmPartialBytes(s);
  plan.sum = {p.m,    p.n,          s.slices,
              p.cRow, p.accumulate, std::max<int64_t>(1, ceilDiv(p.m, 8)),
              p.cType};
  plan.sumUnits = sumSlicesUnits(plan.sum);
}

void planPacked(GemmPlan &plan, const GemmParams &p) {
  plan.kind = GemmPlan::Packed;
  bool shared0 = p.bBatch0 == 0, shared1 = p.bBatch1 == 0;
  plan.pack = {p.n,
               p.k,
               shared0 ? 1 : p.batch0,
               shared1 ? 1 : p.batch1,
               p.bBatch0,
               p.bBatch1,
               p.bRow,
               p.bCol,
               p.bType,
               p.aType};
  plan.gemm.bType = usesPairs(p.aType, p.bType) ? format::kBf16 : format::kF32;
  plan.packUnits = gemmPackBUnits(plan.pack);
  plan.packChunk = std::max<int64_t>(1, std::min(plan.packUnits / 16, 65536 / (p.k + 1)));
  plan.packedBytes = gemmPackedBytes(plan.pack);
  int64_t size = gemmPackedFloats(p.n, p.k);
  plan.gemm.bBatch1 = shared1 ? 0 : size;
  plan.gemm.bBatch0 = shared0 ? 0 : size * plan.pack.batch1;
}

} // namespace

int64_t gemmUnits(const GemmParams &p) {
  return ceilDiv(p.batch0 * p.batch1 * p.m, p.unitRows) * blockCount(p.n, p.unitCols);
}
int64_t gemmWorkerBytes(const GemmParams &p) {
  return workerBytes(p.m, p.k) + gemmResultFloats(p.m, p.n, p.cType) * 4;
}
int64_t gemmPackedFloats(int64_t n, int64_t k) { return roundUp(n, gemm::kTileCols) * k; }
int64_t gemmPackBUnits(const GemmPackBParams &p) {
  return p.batch0 * p.batch1 * ceilDiv(p.n, gemm::kTileCols);
}
int64_t gemmPackedBytes(const GemmPackBParams &p) {
  return p.batch0 * p.batch1 * gemmPackedFloats(p.n, p.k) * 4;
}
int64_t gemmSplitKUnits(const GemmSplitKParams &p) {
  return p.slices * ceilDiv(p.m, p.unitRows) * blockCount(p.n, p.unitCols);
}
int64_t gemmSplitKWorkerBytes(const GemmSplitKParams &p) {
  return workerBytes(p.m, p.sliceK);
}
int64_t gemmPartialBytes(const GemmSplitKParams &p) { return p.slices * p.m * p.n * 4; }
int64_t sumSlicesUnits(const SumSlicesParams &p) { return ceilDiv(p.rows, p.unitRows); }

GemmPlan planGemm(const GemmParams &shape, bool wholeRows, int64_t threads) {
  GemmPlan plan;
  if (wantsSplitK(shape)) {
    planSplitK(plan, shape);
    return plan;
  }
  GemmParams p = mergeBatches(shape);
  if (wholeRows) {
    p.unitRows = rowsPerUnit(p);
    p.unitCols = 0;
  } else {
    useBlocks(p, threads);
  }
  plan.gemm = p;
  plan.gemmUnits = gemmUnits(p);
  plan.gemmChunk = p.unitCols == 0 ? rowChunk(p, plan.gemmUnits) : 1;
  plan.workerBytes = gemmWorkerBytes(p);
  // Packing B where it is used costs about an eighth of the product per 288 rows.
  int64_t uses = ceilDiv(p.m, std::max<int64_t>(1, p.unitRows * plan.gemmChunk));
  // Codes are decoded where they are used, so that their values never lie in memory.
  bool mayPack = p.bCodes.format == 0 && p.n >= 8 && p.n * p.k <= kMaxPacked;
  if (uses > 2 && mayPack)
    planPacked(plan, p);
  return plan;
}

} // namespace sluice
