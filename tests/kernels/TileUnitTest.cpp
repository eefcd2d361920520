// What the matrix unit does to single values, and that its machine code is what runs.

#include "tests/kernels/TileCase.h"

namespace sluice::test {
namespace {

/// One element, so that each value can be followed.
float productOf(std::vector<float> a, std::vector<float> b, float c) {
  GemmParams p = product(1, 1, a.size());
  p.aType = p.bType = format::kBf16, p.accumulate = 1;
  TileOperands o{std::move(a), std::move(b), toBytes(std::vector<float>{c})};
  return fromBytes<float>(runTileGemm(p, o))[0];
}

TEST(TileUnit, DenormalsAreZeros) {
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
TEST(TileUnit, SumsStepsAsTheInstructionDoes) {
  EXPECT_EQ(productOf({0x1p30f, 1, -0x1p30f, 1}, {1, 1, 1, 1}, 0), 2);
  EXPECT_EQ(productOf({0x1p30f, -0x1p30f, 1}, {1, 1, 1}, 0), 0) << "1 joins 2^30";
  EXPECT_EQ(productOf({1, -1}, {1, 1}, 0x1p-30f), 0x1p-30f);
  std::vector<float> ones(33, 1), big(33);
  big[0] = 0x1p30f, big[32] = -0x1p30f;
  EXPECT_EQ(productOf(big, ones, 1), 0) << "a tile of k is added to C before the next";
}

TEST(TileUnit, InfinityAndNanPass) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(productOf({inf, 1}, {2, 3}, 0), inf);
  EXPECT_TRUE(std::isnan(productOf({inf, inf}, {1, -1}, 0)));
  EXPECT_TRUE(std::isnan(productOf({NAN}, {0}, 0)));
}

/// Small sizes and strides, some of them hostile, of operands of bf16.
std::vector<int64_t> strangeParams(std::string_view name, size_t count,
                                   std::mt19937_64 &rng) {
  std::vector<int64_t> params(count);
  for (int64_t &p : params)
    p = rng() % 5 == 0 ? int64_t(rng() % 3 * 32) : 1 + int64_t(rng() % 40);
  for (uint64_t hostile = rng() % 3; hostile > 0; --hostile)
    params[rng() % count] = rng() % 2 ? int64_t(rng() % 3) : int64_t{1} << rng() % 64;
  params[count - 1] = params[count - 2] = format::kBf16;
  if (name == "gemm_splitk_f32") {
    auto p = unpackParams<GemmSplitKParams>(params.data());
    p.sliceK = 256, p.slices = (p.k + 255) / 256, p.unitCols = int64_t(rng() % 2) * 32;
    p.aType = p.bType = format::kBf16, p.aCodes = p.bCodes = {};
    return packParams(p);
  }
  if (name == "gemm_pack_b_f32")
    return params;
  auto p = unpackParams<GemmParams>(params.data());
  p.accumulate = int64_t(rng() % 2), p.unitCols = int64_t(rng() % 2) * 32;
  p.aType = p.bType = format::kBf16, p.cType = int64_t(rng() % 3);
  p.aCodes = p.bCodes = {};
  p.cTiles = rng() % 4 == 0;
  if (p.cTiles)
    p.batch0 = p.batch1 = 1, p.unitCols = p.cRow = 32;
  return packParams(p);
}

/// Whether the launch of all units is accepted and small.
bool isAccepted(std::string_view name, const std::vector<int64_t> &params, int64_t &units,
                std::vector<OperandExtent> &extents) {
  std::string why;
  units = -1;
  describeBuiltinLaunch(name, params.data(), params.size(), units, extents, why);
  if (size_t at = why.find("units, expected "); at != std::string::npos)
    units = std::stoll(why.substr(at + 16));
  bool accepted =
      units < 1000 &&
      describeBuiltinLaunch(name, params.data(), params.size(), units, extents, why);
  for (const OperandExtent &e : extents)
    accepted &= e.bytes <= 1 << 20;
  return accepted;
}

/// Parameters from a stranger: what is accepted runs inside its operands (sanitizers
/// tell).
TEST(TileUnit, HostileParametersAreRefusedOrStayInside) {
  std::mt19937_64 rng(6);
  constexpr int64_t product = paramCount<GemmParams>;
  for (auto [name, count] : {std::pair<std::string_view, size_t>("gemm_f32", product),
                             {"gemm_packed_f32", product},
                             {"gemm_pack_b_f32", paramCount<GemmPackBParams>},
                             {"gemm_splitk_f32", paramCount<GemmSplitKParams>}}) {
    int accepted = 0;
    for (int round = 0; round < 4000; ++round) {
      std::vector<int64_t> params = strangeParams(name, count, rng);
      std::vector<OperandExtent> extents;
      int64_t units = 0;
      if (!isAccepted(name, params, units, extents))
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

TEST(TileUnit, TheMachineCodeIsExecuted) {
  if (!trapsTiles() && !missingForTiles().empty())
    GTEST_SKIP() << "tested on the emulated unit alone";
  long before = TileTrap::executed();
  EXPECT_EQ(productOf({2}, {3}, 1), 7);
  EXPECT_EQ(TileTrap::executed() > before, trapsTiles());
}

/// The other tests run on the processor's unit as well where there is one.
TEST(TileUnit, TheProcessorHasAUnit) {
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
