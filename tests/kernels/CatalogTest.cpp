#include "tests/kernels/KernelCase.h"

#include <algorithm>
#include <map>

namespace sluice::test {
namespace {

TEST(Catalog, FindsEveryNameOnAllLevels) {
  EXPECT_FALSE(builtinKernelNames().empty());
  for (std::string_view name : builtinKernelNames()) {
    EXPECT_NE(findBuiltinKernel(name, FeatureLevel::V3), nullptr) << name;
    EXPECT_NE(findBuiltinKernel(name, FeatureLevel::V4), nullptr) << name;
    EXPECT_NE(findBuiltinKernel(name, FeatureLevel::Amx), nullptr) << name;
  }
  EXPECT_EQ(findBuiltinKernel("gemm", FeatureLevel::V3), nullptr);
  EXPECT_EQ(findBuiltinKernel("", FeatureLevel::V3), nullptr);
}

/// The kernels that may differ from v4's bits are those that say so; others on a
/// processor with tiles are those of the levels below.
TEST(Catalog, OnlyProductsAreOnTiles) {
  for (std::string_view name : builtinKernelNames()) {
    KernelFn tiles = findBuiltinKernel(name, FeatureLevel::Amx);
    bool below = tiles == findBuiltinKernel(name, FeatureLevel::V4) ||
                 tiles == findBuiltinKernel(name, FeatureLevel::Dots);
    bool multiplies = name.starts_with("gemm_") || name.starts_with("conv_") ||
                      name.starts_with("attention_");
    EXPECT_EQ(!below, multiplies) << name;
  }
}

TEST(Catalog, SaysWhyALaunchIsRefused) {
  GemmParams p;
  p.m = p.n = p.k = 4, p.aRow = p.bRow = p.cRow = 4;
  auto params = packParams(p);
  std::string why;
  int64_t sizes[] = {64, 63, 64, gemmWorkerBytes(p)};
  EXPECT_FALSE(
      validBuiltinLaunch("gemm_f32", params.data(), params.size(), sizes, 4, 1, why));
  EXPECT_EQ(why, "operand 1 of 'gemm_f32' has 63 bytes, expected at least 64");
  sizes[1] = 64;
  EXPECT_TRUE(
      validBuiltinLaunch("gemm_f32", params.data(), params.size(), sizes, 4, 1, why));
  EXPECT_FALSE(
      validBuiltinLaunch("gemm_f32", params.data(), params.size(), sizes, 4, 2, why));
  EXPECT_EQ(why, "'gemm_f32': the launch has 2 units, expected 1 from its parameters");
  EXPECT_FALSE(
      validBuiltinLaunch("gemm_f32", params.data(), params.size(), sizes, 3, 1, why));
  EXPECT_EQ(why, "'gemm_f32' got 3 operands, expected 4");
  EXPECT_FALSE(validBuiltinLaunch("gemm_f32", params.data(), 3, sizes, 4, 1, why));
  EXPECT_FALSE(validBuiltinLaunch("nothing", params.data(), 3, sizes, 4, 1, why));
  EXPECT_EQ(why, "no builtin kernel is called 'nothing'");
}

/// No elements, but rows beyond what can be counted: what overflows there is seen by the
/// sanitizers.
TEST(Catalog, RowsOfAnEmptyScatterAreBounded) {
  ScatterAddParams p{};
  p.outer = 3, p.inner = 0, p.axis = int64_t{1} << 62, p.unitCols = p.unitRows = 1;
  auto params = packParams(p);
  std::string why;
  int64_t sizes[3] = {};
  EXPECT_FALSE(validBuiltinLaunch("scatter_add_f32", params.data(), params.size(), sizes,
                                  3, 1, why));
  EXPECT_NE(why.find("scatter_add"), std::string::npos) << why;
}

/// The first plans state no formats: their operands are f32.
TEST(Catalog, AddedParametersMayBeMissing) {
  GemmParams p;
  p.m = p.n = p.k = 4, p.aRow = p.bRow = p.cRow = 4;
  auto params = packParams(p);
  std::vector<OperandExtent> extents;
  std::string why;
  for (size_t missing = 0; missing <= kAddedParams; ++missing) {
    EXPECT_TRUE(describeBuiltinLaunch("gemm_f32", params.data(), params.size() - missing,
                                      1, extents, why))
        << why;
    EXPECT_EQ(extents[0].bytes, 64);
  }
  EXPECT_FALSE(describeBuiltinLaunch("gemm_f32", params.data(),
                                     params.size() - kAddedParams - 1, 1, extents, why));
  EXPECT_FALSE(describeBuiltinLaunch("gemm_f32", params.data(), params.size() + 1, 1,
                                     extents, why));
}

/// Parameters from a stranger: whatever is accepted must run inside its operands (guard
/// pages and sanitizers tell).
TEST(Catalog, HostileParametersAreRefusedOrStayInside) {
  std::mt19937_64 rng(4);
  auto value = [&]() -> int64_t {
    switch (rng() % 8) {
    case 0:
      return -int64_t(rng() % 5);
    case 1:
      return rng();
    case 2:
      return int64_t{1} << (rng() % 64);
    default:
      return rng() % 5;
    }
  };
  std::map<std::string_view, int> accepted;
  for (int round = 0; round < 10000; ++round)
    for (std::string_view name : builtinKernelNames()) {
      std::vector<int64_t> params;
      std::vector<OperandExtent> extents;
      std::string why;
      // The number of parameters is part of the refusal; find the right one by asking.
      describeBuiltinLaunch(name, nullptr, 0, 0, extents, why);
      size_t count = std::stoul(why.substr(why.find("expected ") + 9));
      for (size_t i = 0; i < count; ++i)
        params.push_back(rng() % 5 == 0 ? rng() % 3 * 32 : 1 + rng() % 4);
      for (uint64_t hostile = rng() % 4; hostile > 0; --hostile)
        params[rng() % count] = value();
      for (uint64_t blocks = rng() % 4; blocks > 0; --blocks) // kinds are 0 mostly
        params[count - 1 - rng() % std::min<size_t>(count, 6)] = rng() % 2 * 256;
      bool mayBeCodes = name.starts_with("gemm_") && name != "gemm_pack_b_f32";
      bool isSlices = name == "gemm_splitk_f32";
      if (mayBeCodes && rng() % 4) // nearly all sizes of codes are refused
        std::fill(params.end() - (isSlices ? 8 : 10), params.end(), 0);
      if (isSlices)
        params[7] = rng() % 2 * 256; // steps of a slice
      int64_t units = -1;
      describeBuiltinLaunch(name, params.data(), count, units, extents, why);
      if (size_t at = why.find("units, expected "); at != std::string::npos)
        units = std::stoll(why.substr(at + 16));
      bool fits = describeBuiltinLaunch(name, params.data(), count, units, extents, why);
      for (const OperandExtent &e : extents)
        fits &= e.bytes <= (e.perWorker ? 1 << 28 : 1 << 16);
      if (!fits)
        continue;
      ++accepted[name];
      std::vector<Bytes> memory;
      std::vector<void *> buffers;
      for (const OperandExtent &e : extents) {
        memory.push_back(Bytes(e.bytes > 0 ? e.bytes : 1)); // never null
        for (uint8_t &b : memory.back()) // as indices: near 0 and far out
          b = rng() % 9 ? 0 : rng();
      }
      for (Bytes &m : memory)
        buffers.push_back(m.data());
      findBuiltinKernel(name, FeatureLevel::V3)(buffers.data(), params.data(), 0, units,
                                                0);
    }
  for (std::string_view name : builtinKernelNames())
    EXPECT_GT(accepted[name], 0) << name;
}

} // namespace
} // namespace sluice::test
