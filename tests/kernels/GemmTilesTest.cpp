// Products of bf16 on tiles against the order of sums the kernel documents and against
// double precision.

#include "kernels/reference/Products.h"
#include "tests/kernels/TileCase.h"

namespace sluice::test {
namespace {

/// The bits the kernel documents; what is not C's stays.
Bytes expectedOf(const GemmParams &p, const TileOperands &o) {
  Bytes c = o.c;
  int64_t bytes = formatBytes(p.cType);
  std::vector<float> before = loaded(o.c, p.cType);
  forElements(p, o, [&](const float *a, const float *b, int64_t at) {
    float sum = chained(p.accumulate ? before[at] : 0, p, a, b);
    std::memcpy(&c[at * bytes], stored({sum}, p.cType).data(), bytes);
  });
  return c;
}

/// That the documented order is a sum of products, within rounding.
void checkAgainstDouble(const GemmParams &p, const TileOperands &o, const Bytes &c) {
  auto values = loaded(c, p.cType);
  std::vector<double> expected;
  for (float v : loaded(o.c, p.cType))
    expected.push_back(v);
  reference::gemm(p, o.a.data(), o.b.data(), expected.data());
  double unit = p.cType == format::kF32 ? 0 : p.cType == format::kBf16 ? 0x1p-8 : 0x1p-11;
  forElements(p, o, [&](const float *, const float *, int64_t at) {
    ASSERT_NEAR(values[at], expected[at],
                1e-6 * (4 + 2 * std::sqrt(double(p.k))) + unit * std::fabs(expected[at]));
  });
}

Bytes runPackedGemm(const GemmParams &p, const TileOperands &o) {
  GemmPackBParams pack{p.n,       p.k,    p.batch0, p.batch1, p.bBatch0,
                       p.bBatch1, p.bRow, p.bCol,   p.bType,  p.aType};
  Bytes packed = runOnTiles({"gemm_pack_b_f32",
                             packParams(pack),
                             gemmPackBUnits(pack),
                             {stored(o.b, p.bType), poisoned(gemmPackedBytes(pack))}})[1];
  GemmParams q = p;
  q.bBatch1 = gemmPackedFloats(p.n, p.k), q.bBatch0 = q.bBatch1 * p.batch1;
  return runOnTiles({"gemm_packed_f32",
                     packParams(q),
                     gemmUnits(q),
                     {stored(o.a, p.aType), packed, o.c, {}}})[2];
}

void checkProduct(GemmParams p) {
  p.aType = p.bType = format::kBf16;
  SCOPED_TRACE(testing::Message()
               << p.m << "x" << p.n << "x" << p.k << " batch " << p.batch0 << ","
               << p.batch1 << " C type " << p.cType << " accumulate " << p.accumulate);
  TileOperands o = operandsOf(p);
  Bytes expected = expectedOf(p, o);
  Bytes c = runTileGemm(p, o);
  EXPECT_EQ(c, expected);
  EXPECT_EQ(runPackedGemm(p, o), expected) << "packed";
  checkAgainstDouble(p, o, c);
}

void checkResults(GemmParams p) {
  for (int64_t type : {format::kF32, format::kBf16})
    for (int64_t accumulate : {0, 1}) {
      p.cType = type, p.accumulate = accumulate;
      checkProduct(p);
    }
}

TEST(GemmTiles, TailsOfEverySize) {
  for (int64_t m : {0, 1, 16, 17, 49})
    for (int64_t n : {0, 1, 16, 33, 50})
      for (int64_t k : {0, 1, 2, 32, 45}) {
        GemmParams p = product(m, n, k, m % 2, n % 2);
        checkProduct(p);
        p.cType = format::kBf16;
        checkProduct(p);
      }
}

TEST(GemmTiles, KeepsSumsBetweenRunsOfK) {
  checkResults(product(20, 33, 513, false, true));
  checkResults(product(20, 33, 1100));
  checkProduct(product(300, 20, 511));  // f32: more than a block of rows and than a run
  GemmParams p = product(3, 560, 1056); // more columns than sums are kept of
  p.cType = format::kBf16;
  checkProduct(p);
}

TEST(GemmTiles, ManyRowsOrColumns) {
  checkResults(product(330, 5, 33));
  checkProduct(product(290, 40, 70, true));
  checkResults(product(3, 1100, 40));
  checkResults(product(1, 90, 300, false, true));
  checkResults(product(300, 1, 64));
}

/// Tiles that are loaded from C and stored to it, beside other columns.
TEST(GemmTiles, WholeTilesOfC) {
  checkResults(product(48, 80, 70));
  GemmParams p = product(32, 32, 1056);
  p.cRow = 37;
  checkResults(p);
}

TEST(GemmTiles, AnyStrides) {
  for (bool ta : {false, true})
    for (bool tb : {false, true}) {
      GemmParams p = product(29, 45, 37, ta, tb);
      checkResults(p);
      p.aRow *= 2, p.aCol *= 2, p.bRow *= 3, p.bCol *= 3, p.cRow += 5;
      checkResults(p);
    }
}

TEST(GemmTiles, RoundsToOtherFormats) {
  GemmParams p = product(33, 34, 70);
  p.cType = format::kF16;
  checkProduct(p);
}

TEST(GemmTiles, BatchesAndUnits) {
  checkResults(product(13, 33, 20, false, true, 2, 3));
  GemmParams p = product(7, 33, 20, false, false, 2, 3);
  p.unitRows = 10; // units cross matrices
  checkResults(p);
  p = product(100, 130, 90);
  p.unitRows = 24, p.unitCols = 64;
  checkResults(p);
  checkProduct(product(0, 5, 4, false, false, 0, 2));
  p = product(9, 8, 9, false, false, 2, 3); // heads inside one tensor
  p.bRow = 24, p.bBatch0 = 9 * 24, p.bBatch1 = 8;
  p.cRow = 24, p.cBatch0 = 9 * 24, p.cBatch1 = 8;
  checkResults(p);
}

TEST(GemmTiles, PlannedProductsAreRight) {
  std::mt19937 rng(5);
  int packed = 0;
  for (int i = 0; i < 12; ++i) {
    auto pick = [&](int64_t most) { return int64_t(1 + rng() % most); };
    GemmParams p =
        product(pick(400), pick(70), pick(100), rng() % 2, rng() % 2, pick(2), pick(2));
    p.aType = p.bType = format::kBf16;
    p.cType = rng() % 2 ? format::kBf16 : format::kF32;
    if (rng() % 2)
      p.bBatch0 = p.bBatch1 = 0;
    GemmPlan plan = planGemm(p, rng() % 2);
    ASSERT_NE(plan.kind, GemmPlan::SplitK);
    TileOperands o = operandsOf(p);
    Bytes b = stored(o.b, p.bType);
    if (plan.kind == GemmPlan::Packed) {
      ++packed;
      b = runOnTiles({"gemm_pack_b_f32",
                      packParams(plan.pack),
                      plan.packUnits,
                      {b, poisoned(plan.packedBytes)}})[1];
    }
    KernelCase c{plan.kind == GemmPlan::Packed ? "gemm_packed_f32" : "gemm_f32",
                 packParams(plan.gemm),
                 plan.gemmUnits,
                 {stored(o.a, p.aType), b, o.c, {}}};
    EXPECT_TRUE(multipliesBf16(c.name, c.params.data(), c.params.size()));
    EXPECT_EQ(runOnTiles(c)[2], expectedOf(p, o));
  }
  EXPECT_GT(packed, 0);
}

TEST(GemmTiles, SlicesOfALongK) {
  GemmParams shape = product(10, 20, 4100, true, false);
  shape.aType = shape.bType = format::kBf16;
  GemmPlan plan = planGemm(shape, false);
  ASSERT_EQ(plan.kind, GemmPlan::SplitK);
  TileOperands o = operandsOf(shape);
  KernelCase c{"gemm_splitk_f32",
               packParams(plan.split),
               plan.splitUnits,
               {stored(o.a, format::kBf16),
                stored(o.b, format::kBf16),
                poisoned(plan.partialBytes),
                {}}};
  EXPECT_TRUE(multipliesBf16(c.name, c.params.data(), c.params.size()));
  auto partial = fromBytes<float>(runOnTiles(c)[2]);
  for (int64_t slice = 0; slice < plan.split.slices; ++slice) {
    GemmParams part = shape;
    int64_t k0 = slice * plan.split.sliceK;
    part.k = std::min(plan.split.sliceK, shape.k - k0);
    forElements(shape, o, [&](const float *a, const float *b, int64_t at) {
      ASSERT_EQ(partial[slice * shape.m * shape.n + at],
                chained(0, part, a + k0 * part.aCol, b + k0 * part.bRow));
    });
  }
}

/// Products of other formats have the bits of the levels below.
TEST(GemmTiles, OtherFormatsAreThoseOfTheLevelBelow) {
  for (auto [a, b] :
       {std::pair(format::kF32, format::kBf16), std::pair(format::kBf16, format::kF16),
        std::pair(format::kF32, format::kF32)}) {
    GemmParams p = product(13, 34, 60);
    p.aType = a, p.bType = b;
    TileOperands o = operandsOf(p);
    KernelCase c{"gemm_f32",
                 packParams(p),
                 gemmUnits(p),
                 {stored(o.a, a), stored(o.b, b), o.c, {}}};
    EXPECT_FALSE(multipliesBf16(c.name, c.params.data(), c.params.size()));
    EXPECT_EQ(runOnTiles(c)[2], runEverywhere(c)[2]);
    GemmPackBParams pack{p.n, p.k, 1, 1, 0, 0, p.bRow, p.bCol, b, a};
    KernelCase packing{"gemm_pack_b_f32",
                       packParams(pack),
                       gemmPackBUnits(pack),
                       {stored(o.b, b), poisoned(gemmPackedBytes(pack))}};
    EXPECT_EQ(runOnTiles(packing)[1], runEverywhere(packing)[1]);
  }
}

} // namespace
} // namespace sluice::test
