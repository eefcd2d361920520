#include "kernels/reference/Products.h"
#include "tests/kernels/GemmCase.h"
#include "tests/kernels/KernelCase.h"

#include <cmath>
#include <limits>

namespace sluice::test {
namespace {

struct Data {
  std::vector<float> a, b;
  Bytes before;
  std::vector<double> expected;
};

Data dataFor(const GemmParams &p) {
  std::mt19937 rng(p.m * 31 + p.n * 17 + p.k);
  Data d{randomFloats(rng, sizeA(p)),
         randomFloats(rng, sizeB(p)),
         poisoned(sizeC(p) * 4),
         {}};
  d.expected.assign(sizeC(p), std::numeric_limits<double>::quiet_NaN());
  if (p.accumulate) {
    auto c = randomFloats(rng, sizeC(p));
    d.before = toBytes(c);
    d.expected.assign(c.begin(), c.end());
  }
  reference::gemm(p, d.a.data(), d.b.data(), d.expected.data());
  return d;
}

double toleranceOf(const GemmParams &p) {
  return 1e-6 * (4 + std::sqrt(double(p.k)) * 2);
}

/// Runs gemm_f32 and the packed variant with the units given; both must give the same
/// bits.
Bytes checkProduct(const GemmParams &p) {
  SCOPED_TRACE(testing::Message()
               << p.m << "x" << p.n << "x" << p.k << " batch " << p.batch0 << ","
               << p.batch1 << " strides " << p.aRow << "," << p.aCol << " " << p.bRow
               << "," << p.bCol << " unit " << p.unitRows << "," << p.unitCols);
  Data d = dataFor(p);
  auto after = runEverywhere({"gemm_f32",
                              packParams(p),
                              gemmUnits(p),
                              {toBytes(d.a), toBytes(d.b), d.before, {}}});
  expectNear(d.expected, d.before, after[2], toleranceOf(p));

  GemmPackBParams pack{p.n,       p.k,       p.batch0, p.batch1,
                       p.bBatch0, p.bBatch1, p.bRow,   p.bCol};
  auto packed = runEverywhere({"gemm_pack_b_f32",
                               packParams(pack),
                               gemmPackBUnits(pack),
                               {toBytes(d.b), poisoned(gemmPackedBytes(pack))}})[1];
  GemmParams q = p;
  q.bBatch1 = gemmPackedFloats(p.n, p.k);
  q.bBatch0 = q.bBatch1 * p.batch1;
  auto same = runEverywhere({"gemm_packed_f32",
                             packParams(q),
                             gemmUnits(q),
                             {toBytes(d.a), packed, d.before, {}}});
  EXPECT_EQ(same[2], after[2]) << "packed differs";
  return after[2];
}

TEST(Gemm, TailsOfEverySize) {
  for (int64_t m : {0, 1, 2, 5, 11, 12, 13, 25})
    for (int64_t n : {0, 1, 3, 7, 8, 31, 32, 33, 70})
      for (int64_t k : {0, 1, 3, 17})
        checkProduct(product(m, n, k));
}

TEST(Gemm, LongChains) {
  for (int64_t k : {255, 256, 257, 600})
    checkProduct(product(14, 40, k, false, true));
}

TEST(Gemm, ManyRowsOrColumns) {
  checkProduct(product(700, 5, 33));
  checkProduct(product(700, 40, 300));
  checkProduct(product(3, 900, 40));
  checkProduct(product(1, 300, 300, false, true));
  checkProduct(product(300, 1, 300));
}

TEST(Gemm, AnyStrides) {
  for (bool ta : {false, true})
    for (bool tb : {false, true}) {
      checkProduct(product(29, 45, 37, ta, tb));
      GemmParams p = product(29, 45, 37, ta, tb);
      p.aRow *= 2, p.aCol *= 2, p.bRow *= 3, p.bCol *= 3, p.cRow += 5;
      checkProduct(p);
      p.accumulate = 1;
      checkProduct(p);
    }
}

TEST(Gemm, Batches) {
  checkProduct(product(13, 33, 20, false, true, 2, 3));
  checkProduct(product(40, 6, 20, true, false, 3, 2));
  GemmParams p = product(7, 33, 20, false, false, 2, 3);
  p.bBatch0 = p.bBatch1 = 0; // one B for all
  p.unitRows = 10;           // units cross matrices
  checkProduct(p);
}

TEST(Gemm, RowsOfHeadsInsideOneTensor) {
  // [batch 2][time 9][head 3][dim 8]: C of a head has rows 24 apart.
  GemmParams p = product(9, 8, 9, false, false, 2, 3);
  p.bRow = 24, p.bBatch0 = 9 * 24, p.bBatch1 = 8;
  p.cRow = 24, p.cBatch0 = 9 * 24, p.cBatch1 = 8;
  checkProduct(p);
}

TEST(Gemm, UnitsOfRowsAndColumns) {
  GemmParams p = product(100, 200, 300);
  Bytes whole = checkProduct(p);
  p.unitRows = 24, p.unitCols = 64;
  EXPECT_EQ(checkProduct(p), whole);
  p.unitRows = 7, p.unitCols = 0;
  EXPECT_EQ(checkProduct(p), whole);
}

/// C tile by tile has the bits of the whole one, and nothing beside it is written.
void checkTiles(GemmParams p, int64_t unitRows, int64_t unitCols) {
  SCOPED_TRACE(testing::Message() << p.m << "x" << p.n << "x" << p.k << " tiles of "
                                  << unitRows << "x" << unitCols);
  Data d = dataFor(p);
  auto whole = fromBytes<float>(checkProduct(p));
  p.unitRows = unitRows, p.unitCols = unitCols, p.cTiles = 1, p.cRow = unitCols;
  int64_t columns = (p.n + unitCols - 1) / unitCols, tile = unitRows * unitCols;
  Bytes before = poisoned(gemmUnits(p) * tile * 4);
  auto after =
      fromBytes<uint32_t>(runEverywhere({"gemm_f32",
                                         packParams(p),
                                         gemmUnits(p),
                                         {toBytes(d.a), toBytes(d.b), before, {}}})[2]);
  std::vector<uint32_t> expected(after.size(), kPoison);
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) {
      int64_t unit = i / unitRows * columns + j / unitCols;
      std::memcpy(&expected[unit * tile + i % unitRows * unitCols + j % unitCols],
                  &whole[i * p.n + j], 4);
    }
  EXPECT_EQ(after, expected);
}

TEST(Gemm, TilesOfC) {
  checkTiles(product(100, 200, 300), 24, 64);
  checkTiles(product(29, 45, 37, true, false), 12, 32);
  checkTiles(product(13, 64, 257, false, true), 13, 32);
  checkTiles(product(40, 5, 20), 7, 32);
  checkTiles(product(5, 70, 0), 12, 64);
}

TEST(Gemm, SplitKSumsSlicesInOrder) {
  GemmParams shape = product(10, 20, 5000, true, false);
  shape.accumulate = 1;
  GemmPlan plan = planGemm(shape, false);
  ASSERT_EQ(plan.kind, GemmPlan::SplitK);
  Data d = dataFor(shape);
  auto partial =
      runEverywhere({"gemm_splitk_f32",
                     packParams(plan.split),
                     plan.splitUnits,
                     {toBytes(d.a), toBytes(d.b), poisoned(plan.partialBytes), {}}})[2];
  auto c = runEverywhere(
      {"sum_slices_f32", packParams(plan.sum), plan.sumUnits, {partial, d.before}})[1];
  expectNear(d.expected, d.before, c, toleranceOf(shape));
}

TEST(Gemm, PlannedProductsAreRight) {
  std::mt19937 rng(3);
  for (int i = 0; i < 60; ++i) {
    auto pick = [&](int64_t most) { return int64_t(rng() % most); };
    GemmParams shape = product(pick(200), pick(200), pick(400), rng() % 2, rng() % 2,
                               1 + pick(3), 1 + pick(3));
    if (rng() % 3 == 0)
      shape.bBatch0 = shape.bBatch1 = 0;
    shape.accumulate = rng() % 2;
    for (bool wholeRows : {false, true}) {
      GemmPlan plan = planGemm(shape, wholeRows);
      Data d = dataFor(shape);
      Bytes b = toBytes(d.b);
      if (plan.kind == GemmPlan::Packed)
        b = runEverywhere({"gemm_pack_b_f32",
                           packParams(plan.pack),
                           plan.packUnits,
                           {b, poisoned(plan.packedBytes)}})[1];
      auto name = plan.kind == GemmPlan::Packed ? "gemm_packed_f32" : "gemm_f32";
      auto after = runEverywhere(
          {name, packParams(plan.gemm), plan.gemmUnits, {toBytes(d.a), b, d.before, {}}});
      expectNear(d.expected, d.before, after[2], toleranceOf(shape));
    }
  }
}

/// What the threads of a plan change is how the work is shared out.
TEST(Gemm, LongSumsAreCutForTheThreads) {
  GemmParams shape = product(64, 300, 2100);
  Data d = dataFor(shape);
  std::vector<Bytes> results;
  int64_t last = 0;
  for (int64_t threads : {1, 2}) {
    GemmPlan plan = planGemm(shape, false, threads);
    ASSERT_EQ(plan.kind, GemmPlan::Direct);
    EXPECT_GT(plan.gemmUnits, last);
    last = plan.gemmUnits;
    results.push_back(runEverywhere({"gemm_f32",
                                     packParams(plan.gemm),
                                     plan.gemmUnits,
                                     {toBytes(d.a), toBytes(d.b), d.before, {}}})[2]);
    EXPECT_EQ(results.back(), results.front());
  }
  expectNear(d.expected, d.before, results.front(), toleranceOf(shape));
}

/// Bits are one fma chain per 256 steps, block sums added in order.
TEST(Gemm, BitsAreTheDocumentedChains) {
  GemmParams p = product(13, 37, 600);
  Data d = dataFor(p);
  auto c = fromBytes<float>(checkProduct(p));
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) {
      float total = 0;
      for (int64_t k0 = 0; k0 < p.k; k0 += 256) {
        float sum = 0;
        for (int64_t k = k0; k < std::min<int64_t>(k0 + 256, p.k); ++k)
          sum = std::fmaf(d.a[i * p.k + k], d.b[k * p.n + j], sum);
        total = k0 ? total + sum : sum;
      }
      ASSERT_EQ(c[i * p.n + j], total);
    }
}

TEST(Gemm, ChunksMayUseAPieceOfC) {
  GemmParams p = product(30, 40, 20);
  p.unitRows = 8;
  std::vector<OperandExtent> extents;
  std::string why;
  auto params = packParams(p);
  ASSERT_TRUE(
      describeBuiltinLaunch("gemm_f32", params.data(), params.size(), 4, extents, why));
  EXPECT_EQ(extents[0].unitBytes, 8 * 20 * 4);
  EXPECT_EQ(extents[1].unitBytes, 0);
  EXPECT_EQ(extents[2].unitBytes, 8 * 40 * 4);
  EXPECT_TRUE(extents[3].perWorker);
}

} // namespace
} // namespace sluice::test
