// Products of 16-bit operands: the bits of the f32 product of the widened operands,
// rounded once where C has 16 bits too.

#include "tests/kernels/GemmCase.h"
#include "tests/kernels/HalfFormats.h"

namespace sluice::test {
namespace {

struct Operands {
  Bytes a, b, c;
};

Operands operandsOf(const GemmParams &p) {
  std::mt19937 rng(p.m * 31 + p.n * 17 + p.k);
  Operands o{stored(randomFloats(rng, sizeA(p)), p.aType),
             stored(randomFloats(rng, sizeB(p)), p.bType),
             poisoned(sizeC(p) * formatBytes(p.cType))};
  if (p.accumulate)
    o.c = stored(randomFloats(rng, sizeC(p)), p.cType);
  return o;
}

Bytes runGemm(const GemmParams &p, const Operands &o) {
  return runEverywhere({"gemm_f32", packParams(p), gemmUnits(p), {o.a, o.b, o.c, {}}})[2];
}

Bytes runPackedGemm(const GemmParams &p, const Operands &o) {
  GemmPackBParams pack{p.n,       p.k,    p.batch0, p.batch1, p.bBatch0,
                       p.bBatch1, p.bRow, p.bCol,   p.bType};
  Bytes packed = runEverywhere({"gemm_pack_b_f32",
                                packParams(pack),
                                gemmPackBUnits(pack),
                                {o.b, poisoned(gemmPackedBytes(pack))}})[1];
  GemmParams q = p;
  q.bType = format::kF32;
  q.bBatch1 = gemmPackedFloats(p.n, p.k), q.bBatch0 = q.bBatch1 * p.batch1;
  return runEverywhere(
      {"gemm_packed_f32", packParams(q), gemmUnits(q), {o.a, packed, o.c, {}}})[2];
}

/// What the product of f32 gives for the values `o` holds, stored as C is. Elements that
/// are not C's are those before.
Bytes expectedOf(const GemmParams &p, const Operands &o) {
  GemmParams wide = p;
  wide.aType = wide.bType = wide.cType = format::kF32;
  Bytes before = p.accumulate ? widened(o.c, p.cType) : poisoned(sizeC(p) * 4);
  Bytes sums = runGemm(wide, {widened(o.a, p.aType), widened(o.b, p.bType), before});
  if (p.cType == format::kF32)
    return sums;
  Bytes result = stored(fromBytes<float>(sums), p.cType);
  auto was = fromBytes<uint32_t>(before), is = fromBytes<uint32_t>(sums);
  for (size_t i = 0; i < is.size(); ++i)
    if (is[i] == was[i])
      std::memcpy(&result[2 * i], &o.c[2 * i], 2);
  return result;
}

void checkProduct(const GemmParams &p) {
  SCOPED_TRACE(testing::Message()
               << p.m << "x" << p.n << "x" << p.k << " batch " << p.batch0 << ","
               << p.batch1 << " types " << p.aType << p.bType << p.cType << " accumulate "
               << p.accumulate);
  Operands o = operandsOf(p);
  Bytes expected = expectedOf(p, o);
  EXPECT_EQ(runGemm(p, o), expected);
  EXPECT_EQ(runPackedGemm(p, o), expected) << "packed";
}

/// Both formats as operands, with a C of f32 and of their own.
void checkFormats(GemmParams p) {
  for (int64_t type : kHalfFormats)
    for (int64_t result : {format::kF32, type}) {
      p.aType = p.bType = type, p.cType = result;
      checkProduct(p);
    }
}

TEST(GemmHalf, TailsOfEverySize) {
  for (int64_t m : {0, 1, 11, 12, 25})
    for (int64_t n : {0, 1, 7, 31, 33, 70})
      for (int64_t k : {0, 1, 3, 17})
        checkFormats(product(m, n, k));
}

TEST(GemmHalf, LongChainsRoundOnce) {
  for (int64_t k : {256, 257, 600})
    checkFormats(product(14, 40, k, false, true));
}

TEST(GemmHalf, ManyRowsOrColumns) {
  checkFormats(product(700, 5, 33));
  checkFormats(product(600, 40, 300));
  checkFormats(product(3, 1100, 40));
  checkFormats(product(1, 530, 300, false, true));
  checkFormats(product(600, 1, 300));
}

TEST(GemmHalf, AnyStridesAndAccumulation) {
  for (bool ta : {false, true})
    for (bool tb : {false, true}) {
      GemmParams p = product(29, 45, 37, ta, tb);
      checkFormats(p);
      p.aRow *= 2, p.aCol *= 2, p.bRow *= 3, p.bCol *= 3, p.cRow += 5;
      p.accumulate = 1;
      checkFormats(p);
    }
  GemmParams skinny = product(90, 4, 300);
  skinny.accumulate = 1;
  checkFormats(skinny);
}

TEST(GemmHalf, BatchesAndUnits) {
  checkFormats(product(13, 33, 20, false, true, 2, 3));
  GemmParams p = product(7, 33, 20, false, false, 2, 3);
  p.unitRows = 10; // units cross matrices
  checkFormats(p);
  p = product(100, 200, 300);
  p.unitRows = 24, p.unitCols = 64;
  checkFormats(p);
  checkFormats(product(0, 5, 4, false, false, 0, 2));
}

TEST(GemmHalf, OperandsOfDifferentFormats) {
  for (int64_t a : {format::kF32, format::kBf16, format::kF16})
    for (int64_t b : {format::kF32, format::kBf16, format::kF16})
      for (int64_t c : {format::kF32, format::kBf16, format::kF16}) {
        GemmParams p = product(13, 34, 260);
        p.aType = a, p.bType = b, p.cType = c;
        checkProduct(p);
      }
}

TEST(GemmHalf, PlannedProductsAreRight) {
  std::mt19937 rng(5);
  for (int i = 0; i < 24; ++i) {
    auto pick = [&](int64_t most) { return int64_t(1 + rng() % most); };
    GemmParams p =
        product(pick(700), pick(90), pick(300), rng() % 2, rng() % 2, pick(2), pick(2));
    p.aType = p.bType = kHalfFormats[rng() % 2];
    p.cType = rng() % 2 ? p.aType : format::kF32;
    GemmPlan plan = planGemm(p, rng() % 2);
    ASSERT_NE(plan.kind, GemmPlan::SplitK);
    Operands o = operandsOf(p);
    Bytes b = o.b;
    bool packed = plan.kind == GemmPlan::Packed;
    if (packed)
      b = runEverywhere({"gemm_pack_b_f32",
                         packParams(plan.pack),
                         plan.packUnits,
                         {b, poisoned(plan.packedBytes)}})[1];
    auto after = runEverywhere({packed ? "gemm_packed_f32" : "gemm_f32",
                                packParams(plan.gemm),
                                plan.gemmUnits,
                                {o.a, b, o.c, {}}});
    EXPECT_EQ(after[2], expectedOf(p, o));
  }
}

/// The partial sums are f32; their sum is rounded.
TEST(GemmHalf, SplitKRoundsTheSumOfSlices) {
  for (int64_t type : kHalfFormats) {
    GemmParams shape = product(10, 20, 5000, true, false);
    shape.accumulate = 1;
    Operands o;
    Bytes expected;
    for (bool half : {false, true}) {
      shape.aType = shape.bType = shape.cType = type;
      if (!half) {
        o = operandsOf(shape);
        o = {widened(o.a, type), widened(o.b, type), widened(o.c, type)};
        shape.aType = shape.bType = shape.cType = format::kF32;
      } else {
        o = operandsOf(shape);
      }
      GemmPlan plan = planGemm(shape, false);
      ASSERT_EQ(plan.kind, GemmPlan::SplitK);
      Bytes partial = runEverywhere({"gemm_splitk_f32",
                                     packParams(plan.split),
                                     plan.splitUnits,
                                     {o.a, o.b, poisoned(plan.partialBytes), {}}})[2];
      Bytes c = runEverywhere(
          {"sum_slices_f32", packParams(plan.sum), plan.sumUnits, {partial, o.c}})[1];
      if (half)
        EXPECT_EQ(c, expected);
      else
        expected = stored(fromBytes<float>(c), type);
    }
  }
}

/// Ties, denormals, overflow, infinities and NaN, through a product with 1 and a C that
/// starts as -0.
TEST(GemmHalf, RoundsAsTheFormatSays) {
  std::vector<float> values = {0.0f,
                               -0.0f,
                               1.0f,
                               1 + 0x1p-8f,
                               1 + 0x3p-8f,
                               1 + 0x1p-11f,
                               1 + 0x3p-11f,
                               65519.0f,
                               65520.0f,
                               -65504.0f,
                               3.4e38f,
                               0x1.ffp127f,
                               std::numeric_limits<float>::infinity(),
                               -std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::quiet_NaN(),
                               0x1p-24f,
                               0x1p-25f,
                               0x1.8p-25f,
                               0x3p-26f,
                               1e-40f,
                               0x1p-149f,
                               0x1p-134f,
                               0x3p-135f};
  while (values.size() % 8)
    values.push_back(-values[values.size() - 8]);
  GemmParams p = product(1, values.size(), 1);
  for (int64_t type : kHalfFormats) {
    p.cType = type;
    Operands o{toBytes(std::vector<float>{1}), toBytes(values),
               poisoned(2 * values.size())};
    auto c = loaded(runGemm(p, o), type), expected = loaded(stored(values, type), type);
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_TRUE(c[i] == expected[i] || (c[i] != c[i] && expected[i] != expected[i]))
          << values[i] << " became " << c[i] << ", expected " << expected[i];
  }
}

TEST(GemmHalf, RefusesOtherFormats) {
  GemmParams p = product(4, 4, 4);
  std::vector<OperandExtent> extents;
  std::string why;
  for (int64_t GemmParams::*type :
       {&GemmParams::aType, &GemmParams::bType, &GemmParams::cType}) {
    GemmParams q = p;
    q.*type = 3;
    auto params = packParams(q);
    EXPECT_FALSE(
        describeBuiltinLaunch("gemm_f32", params.data(), params.size(), 1, extents, why));
    EXPECT_EQ(why, "'gemm_f32': types must be 0 (f32), 1 (bf16) or 2 (f16)");
  }
  p.bType = format::kBf16;
  auto params = packParams(p);
  EXPECT_FALSE(describeBuiltinLaunch("gemm_packed_f32", params.data(), params.size(), 1,
                                     extents, why));
  EXPECT_EQ(why, "'gemm_packed_f32': a packed B must be f32, or bf16 where A is");
}

} // namespace
} // namespace sluice::test
