// Products of bf16 on tiles: the kernels of level `amx` on a unit in plain code, and
// their machine code on the processor's or on a trap, against the order of sums the
// kernel documents and against double precision.

#include "kernels/MatrixUnit.h"
#include "kernels/cpu/Kernels.h"
#include "kernels/reference/Products.h"
#include "tests/kernels/GemmCase.h"
#include "tests/kernels/HalfFormats.h"
#include "tests/kernels/TileTrap.h"

#include <optional>

namespace sluice::emulated {
SLUICE_TILE_KERNELS;
}

namespace sluice::test {
namespace {

KernelFn emulatedKernel(std::string_view name) {
  return name == "gemm_f32"          ? emulated::gemm
         : name == "gemm_packed_f32" ? emulated::gemmPacked
         : name == "gemm_pack_b_f32" ? emulated::gemmPackB
                                     : emulated::gemmSplitK;
}

/// Where the processor has no tiles, the machine code for them is executed by a trap.
bool trapsTiles() {
  static const bool traps = [] {
    for (const std::string &feature : missingForTiles())
      if (feature == "amx-tile")
        return hasLevel(FeatureLevel::V4);
    return false;
  }();
  return traps;
}

/// On the emulated unit, and the code for the real one.
std::vector<Bytes> runOnTiles(const KernelCase &c) {
  std::vector<KernelFn> kernels = {emulatedKernel(c.name)};
  if (missingForTiles().empty() || trapsTiles())
    kernels.push_back(findBuiltinKernel(c.name, FeatureLevel::Amx));
  std::optional<TileTrap> trap;
  if (trapsTiles())
    trap.emplace();
  return runOn(kernels, c);
}

struct Operands {
  std::vector<float> a, b;
  Bytes c;
};

Operands operandsOf(const GemmParams &p) {
  std::mt19937 rng(p.m * 31 + p.n * 17 + p.k);
  auto halves = [&](int64_t count) {
    return loaded(stored(randomFloats(rng, count), format::kBf16), format::kBf16);
  };
  Operands o{halves(sizeA(p)), halves(sizeB(p)),
             poisoned(sizeC(p) * formatBytes(p.cType))};
  if (p.accumulate)
    o.c = stored(randomFloats(rng, sizeC(p)), p.cType);
  o.a.reserve(1), o.b.reserve(1); // rows of nothing are somewhere
  return o;
}

float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? x * 0 : x; }

/// Element (i, j) of a matrix, from `sum` on.
float chained(float sum, const GemmParams &p, const float *a, const float *b) {
  for (int64_t k0 = 0; k0 < p.k; k0 += 32) {
    float parts[2] = {0, 0};
    for (int64_t k = k0; k < k0 + 32; ++k) {
      float x = k < p.k ? a[k * p.aCol] : 0, y = k < p.k ? b[k * p.bRow] : 0;
      parts[k % 2] = flushed(std::fma(flushed(x), flushed(y), parts[k % 2]));
    }
    sum = flushed(flushed(sum) + flushed(parts[0] + parts[1]));
  }
  return sum;
}

/// Calls body(i, j, a row, b column, index in C) for every element of C.
template <typename Body>
void forElements(const GemmParams &p, const Operands &o, Body body) {
  for (int64_t b0 = 0; b0 < p.batch0; ++b0)
    for (int64_t b1 = 0; b1 < p.batch1; ++b1)
      for (int64_t i = 0; i < p.m; ++i)
        for (int64_t j = 0; j < p.n; ++j)
          body(o.a.data() + b0 * p.aBatch0 + b1 * p.aBatch1 + i * p.aRow,
               o.b.data() + b0 * p.bBatch0 + b1 * p.bBatch1 + j * p.bCol,
               b0 * p.cBatch0 + b1 * p.cBatch1 + i * p.cRow + j);
}

/// The bits the kernel documents; what is not C's stays.
Bytes expectedOf(const GemmParams &p, const Operands &o) {
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
void checkAgainstDouble(const GemmParams &p, const Operands &o, const Bytes &c) {
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

Bytes runGemm(const GemmParams &p, const Operands &o) {
  return runOnTiles({"gemm_f32",
                     packParams(p),
                     gemmUnits(p),
                     {stored(o.a, p.aType), stored(o.b, p.bType), o.c, {}}})[2];
}

Bytes runPackedGemm(const GemmParams &p, const Operands &o) {
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
  Operands o = operandsOf(p);
  Bytes expected = expectedOf(p, o);
  Bytes c = runGemm(p, o);
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
    Operands o = operandsOf(p);
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
    EXPECT_TRUE(multipliesOnTiles(c.name, c.params.data(), c.params.size()));
    EXPECT_EQ(runOnTiles(c)[2], expectedOf(p, o));
  }
  EXPECT_GT(packed, 0);
}

TEST(GemmTiles, SlicesOfALongK) {
  GemmParams shape = product(10, 20, 4100, true, false);
  shape.aType = shape.bType = format::kBf16;
  GemmPlan plan = planGemm(shape, false);
  ASSERT_EQ(plan.kind, GemmPlan::SplitK);
  Operands o = operandsOf(shape);
  KernelCase c{"gemm_splitk_f32",
               packParams(plan.split),
               plan.splitUnits,
               {stored(o.a, format::kBf16),
                stored(o.b, format::kBf16),
                poisoned(plan.partialBytes),
                {}}};
  EXPECT_TRUE(multipliesOnTiles(c.name, c.params.data(), c.params.size()));
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
    Operands o = operandsOf(p);
    KernelCase c{"gemm_f32",
                 packParams(p),
                 gemmUnits(p),
                 {stored(o.a, a), stored(o.b, b), o.c, {}}};
    EXPECT_FALSE(multipliesOnTiles(c.name, c.params.data(), c.params.size()));
    EXPECT_EQ(runOnTiles(c)[2], runEverywhere(c)[2]);
    GemmPackBParams pack{p.n, p.k, 1, 1, 0, 0, p.bRow, p.bCol, b, a};
    KernelCase packing{"gemm_pack_b_f32",
                       packParams(pack),
                       gemmPackBUnits(pack),
                       {stored(o.b, b), poisoned(gemmPackedBytes(pack))}};
    EXPECT_EQ(runOnTiles(packing)[1], runEverywhere(packing)[1]);
  }
}

/// One element, so that each value can be followed.
float productOf(std::vector<float> a, std::vector<float> b, float c) {
  GemmParams p = product(1, 1, a.size());
  p.aType = p.bType = format::kBf16, p.accumulate = 1;
  Operands o{std::move(a), std::move(b), toBytes(std::vector<float>{c})};
  return fromBytes<float>(runGemm(p, o))[0];
}

TEST(GemmTiles, DenormalsAreZeros) {
  EXPECT_EQ(productOf({0x1p-127f}, {0x1p100f}, 1), 1) << "of A";
  EXPECT_EQ(productOf({0x1p100f}, {0x1p-130f}, 1), 1) << "of B";
  EXPECT_EQ(productOf({1}, {0x1p-126f}, 0x1p-127f), 0x1p-126f) << "of C";
  EXPECT_EQ(productOf({0x1p-70f}, {0x1p-60f}, 0), 0) << "as product";
  EXPECT_EQ(productOf({0x1p-126f, 0x1.8p-126f}, {-1, 1}, 0), 0) << "as sum";
  EXPECT_EQ(productOf({0x1.8p-126f}, {-1}, 0x1p-126f), 0) << "as result";
  std::vector<float> small(31, 0x1p-70f), smaller(31, 0x1p-60f);
  EXPECT_EQ(productOf(small, smaller, 0), 0) << "within a chain";
  EXPECT_EQ(productOf({0x1p-126f}, {1}, 0), 0x1p-126f) << "the smallest normal";
  EXPECT_EQ(productOf({}, {}, 0x1p-140f), 0x1p-140f) << "nothing is added";
  // 2^-126 - 2^-150 has 24 bits, so it is tiny; with 2^-152 it rounds to 2^-126.
  EXPECT_EQ(productOf({0x1p-126f, 0, 0x1p-75f}, {1, 0, -0x1p-75f}, 0), 0);
  EXPECT_EQ(productOf({0x1p-126f, 0, 0x1p-76f}, {1, 0, -0x1p-76f}, 0), 0x1p-126f);
}

/// Even and odd steps are summed apart, from 0, before C is added.
TEST(GemmTiles, SumsStepsAsTheInstructionDoes) {
  EXPECT_EQ(productOf({0x1p30f, 1, -0x1p30f, 1}, {1, 1, 1, 1}, 0), 2);
  EXPECT_EQ(productOf({0x1p30f, -0x1p30f, 1}, {1, 1, 1}, 0), 0) << "1 joins 2^30";
  EXPECT_EQ(productOf({1, -1}, {1, 1}, 0x1p-30f), 0x1p-30f);
  std::vector<float> ones(33, 1), big(33);
  big[0] = 0x1p30f, big[32] = -0x1p30f;
  EXPECT_EQ(productOf(big, ones, 1), 0) << "a tile of k is added to C before the next";
}

TEST(GemmTiles, InfinityAndNanPass) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(productOf({inf, 1}, {2, 3}, 0), inf);
  EXPECT_TRUE(std::isnan(productOf({inf, inf}, {1, -1}, 0)));
  EXPECT_TRUE(std::isnan(productOf({NAN}, {0}, 0)));
}

/// Parameters from a stranger: what is accepted runs inside its operands (sanitizers
/// tell).
TEST(GemmTiles, HostileParametersAreRefusedOrStayInside) {
  std::mt19937_64 rng(6);
  for (std::string_view name :
       {"gemm_f32", "gemm_packed_f32", "gemm_pack_b_f32", "gemm_splitk_f32"}) {
    int accepted = 0;
    for (int round = 0; round < 4000; ++round) {
      std::vector<OperandExtent> extents;
      std::string why;
      describeBuiltinLaunch(name, nullptr, 0, 0, extents, why);
      size_t count = std::stoul(why.substr(why.find("expected ") + 9));
      bool slices = name == "gemm_splitk_f32";
      std::vector<int64_t> params(count);
      for (int64_t &p : params)
        p = rng() % 5 == 0 ? int64_t(rng() % 3 * 32) : 1 + int64_t(rng() % 40);
      for (uint64_t hostile = rng() % 3; hostile > 0; --hostile)
        params[rng() % count] = rng() % 2 ? int64_t(rng() % 3) : int64_t{1} << rng() % 64;
      if (slices)
        params[7] = 256, params[8] = (params[2] + 255) / 256;
      int64_t flags = name == "gemm_pack_b_f32" || slices ? 0 : 1; // accumulate
      if (flags)
        params[16] = int64_t(rng() % 2), params[18] = int64_t(rng() % 2) * 32;
      else if (slices)
        params[10] = int64_t(rng() % 2) * 32;
      params[count - 1] = params[count - 2] = format::kBf16;
      if (flags)
        params[count - 3] = format::kBf16, params[count - 1] = int64_t(rng() % 3);
      int64_t units = -1;
      describeBuiltinLaunch(name, params.data(), count, units, extents, why);
      if (size_t at = why.find("units, expected "); at != std::string::npos)
        units = std::stoll(why.substr(at + 16));
      bool fits = units < 1000 &&
                  describeBuiltinLaunch(name, params.data(), count, units, extents, why);
      for (const OperandExtent &e : extents)
        fits &= e.bytes <= 1 << 20;
      if (!fits)
        continue;
      ++accepted;
      std::vector<Bytes> memory;
      std::vector<void *> buffers;
      for (const OperandExtent &e : extents)
        memory.push_back(Bytes(std::max<int64_t>(e.bytes, 1)));
      for (Bytes &m : memory)
        buffers.push_back(m.data());
      emulatedKernel(name)(buffers.data(), params.data(), 0, units, 0);
    }
    EXPECT_GT(accepted, 100) << name;
  }
}

TEST(GemmTiles, TheMachineCodeIsExecuted) {
  if (!trapsTiles() && !missingForTiles().empty())
    GTEST_SKIP() << "tested on the emulated unit alone";
  long before = TileTrap::executed();
  EXPECT_EQ(productOf({2}, {3}, 1), 7);
  EXPECT_EQ(TileTrap::executed() > before, trapsTiles());
}

/// The other tests run on the processor's unit as well where there is one.
TEST(GemmTiles, TheProcessorHasAUnit) {
  std::vector<std::string> missing = missingForTiles();
  if (missing.empty()) {
    EXPECT_TRUE(missingForTiles().empty()) << "asking twice";
    return;
  }
  std::string list;
  for (const std::string &feature : missing)
    list += " " + feature;
  GTEST_SKIP() << "no AMX here, its instructions were emulated; lacking:" << list;
}

} // namespace
} // namespace sluice::test
