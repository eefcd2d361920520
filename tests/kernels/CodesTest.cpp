// Products that decode codes as they pack: the bits of products of what decodeTensor
// gives, at every level and in every format.

#include "kernels/StoredFormats.h"
#include "tests/kernels/GemmCase.h"
#include "tests/kernels/TileCase.h"

namespace sluice::test {
namespace {

constexpr StoredFormat kFormats[] = {StoredFormat::e4m3,    StoredFormat::e5m2,
                                     StoredFormat::e4m3Row, StoredFormat::e4m3Tile,
                                     StoredFormat::mxfp8,   StoredFormat::mxfp4,
                                     StoredFormat::nvfp4};

/// An operand in a format: its codes, its scales, and its values as the product is to see
/// them.
struct Coded {
  CodedAs as;
  std::vector<Bytes> parts;
  std::vector<float> values;
};

Coded codedOf(StoredFormat format, int64_t rows, int64_t columns, unsigned seed) {
  std::mt19937 rng(seed);
  const int64_t shape[] = {rows, columns};
  std::vector<float> wide = randomFloats(rng, rows * columns);
  for (int64_t i = 0; i < columns; ++i)
    wide[i] = 0; // blocks of zeros
  for (int64_t i = columns; i < rows * columns; ++i)
    wide[i] *= i % 7 ? 1.0f : 0x1p-12f;
  EncodedTensor encoded = encodeTensor(format, shape, wide);
  Coded made{{int64_t(format), rows * columns, columns},
             {encoded.codes, encoded.scales},
             std::vector<float>(wide.size())};
  if (traitsOf(format).scale == ScaleKind::twoLevel)
    made.parts.push_back(toBytes(std::vector<float>{encoded.global}));
  decodeTensor(format, shape, encoded, made.values);
  return made;
}

/// Which operands are codes.
struct Sides {
  bool a, b;
};

KernelCase codedCase(GemmParams p, const Coded &a, const Coded &b, Sides sides) {
  KernelCase c{"gemm_f32", {}, gemmUnits(p), {}};
  c.operands = {sides.a ? a.parts[0] : stored(a.values, p.aType),
                sides.b ? b.parts[0] : stored(b.values, p.bType)};
  if (sides.a) {
    p.aCodes = a.as;
    c.operands.insert(c.operands.end(), a.parts.begin() + 1, a.parts.end());
  }
  if (sides.b) {
    p.bCodes = b.as;
    c.operands.insert(c.operands.end(), b.parts.begin() + 1, b.parts.end());
  }
  c.params = packParams(p);
  c.operands.push_back(poisoned(sizeC(p) * 4));
  c.operands.push_back({});
  return c;
}

template <typename Run>
void checkFormats(int64_t m, int64_t n, int64_t k, int64_t type, Run run) {
  for (StoredFormat format : kFormats)
    for (bool transposed : {false, true}) {
      GemmParams p = product(m, n, k, transposed, !transposed);
      p.aType = p.bType = type;
      const int64_t ofA[] = {transposed ? k : m, transposed ? m : k};
      const int64_t ofB[] = {transposed ? k : n, transposed ? n : k};
      if (!isWhole(format, ofA) || !isWhole(format, ofB))
        continue;
      Coded a = codedOf(format, ofA[0], ofA[1], 1),
            b = codedOf(format, ofB[0], ofB[1], 2);
      KernelCase plain = codedCase(p, a, b, {false, false});
      Bytes expected = run(plain)[2];
      for (Sides sides : {Sides{true, false}, Sides{false, true}, Sides{true, true}}) {
        SCOPED_TRACE(testing::Message()
                     << traitsOf(format).name << " transposed " << transposed << " A "
                     << sides.a << " B " << sides.b << " type " << type);
        KernelCase coded = codedCase(p, a, b, sides);
        EXPECT_EQ(run(coded)[coded.operands.size() - 2], expected);
      }
    }
}

TEST(Codes, ProductsReadEveryFormat) {
  checkFormats(48, 64, 256, format::kBf16, runEverywhere);
  checkFormats(32, 32, 288, format::kF32, runEverywhere); // k in two blocks
  checkFormats(320, 32, 32, format::kF32, runEverywhere); // more rows than a block holds
  checkFormats(64, 2, 128, format::kF32, runEverywhere);  // computed transposed
}

TEST(Codes, ProductsOnTilesReadEveryFormat) {
  checkFormats(48, 64, 160, format::kBf16, runOnTiles);
  checkFormats(16, 32, 1056, format::kBf16, runOnTiles); // k in two runs
}

TEST(Codes, SlicesOfLongSumsReadCodes) {
  const int64_t m = 16, n = 24, k = 4096;
  GemmParams shape = product(m, n, k, true, false);
  Coded a = codedOf(StoredFormat::nvfp4, k, m, 3);
  Coded b = codedOf(StoredFormat::mxfp8, k, n, 4);
  GemmPlan plan = planGemm(shape, false);
  ASSERT_EQ(plan.kind, GemmPlan::SplitK);
  Bytes partial = poisoned(plan.partialBytes);
  Bytes expected =
      runEverywhere({"gemm_splitk_f32",
                     packParams(plan.split),
                     plan.splitUnits,
                     {toBytes(a.values), toBytes(b.values), partial, {}}})[2];
  shape.aCodes = a.as, shape.bCodes = b.as;
  plan = planGemm(shape, false);
  Bytes coded = runEverywhere(
      {"gemm_splitk_f32",
       packParams(plan.split),
       plan.splitUnits,
       {a.parts[0], b.parts[0], a.parts[1], a.parts[2], b.parts[1], partial, {}}})[5];
  EXPECT_EQ(coded, expected);
}

TEST(Codes, AreNotPackedAhead) {
  GemmParams p = product(4096, 256, 256);
  EXPECT_EQ(planGemm(p, false).kind, GemmPlan::Packed);
  p.bCodes = {int64_t(StoredFormat::mxfp8), 256 * 256, 256};
  EXPECT_EQ(planGemm(p, false).kind, GemmPlan::Direct);
}

TEST(Codes, TensorsThatDoNotFitAreRefused) {
  GemmParams p = product(8, 32, 64);
  auto refused = [&](CodedAs as) {
    p.bCodes = as;
    std::vector<OperandExtent> extents;
    std::string why;
    std::vector<int64_t> params = packParams(p);
    bool accepted = describeBuiltinLaunch("gemm_f32", params.data(), params.size(),
                                          gemmUnits(p), extents, why);
    return accepted ? "" : why;
  };
  auto mxfp4 = int64_t(StoredFormat::mxfp4);
  EXPECT_EQ(refused({mxfp4, 32 * 64, 32}), "");
  EXPECT_EQ(refused({mxfp4, 32 * 63, 32}),
            "'gemm_f32': the product reaches beyond the tensor of codes");
  EXPECT_EQ(refused({mxfp4, 32 * 64 + 16, 16}),
            "'gemm_f32': a tensor of codes must have whole blocks");
  EXPECT_EQ(refused({int64_t(StoredFormat::bf16), 32 * 64, 32}),
            "'gemm_f32': codes must be of a format of 8 or 4 bits");
}

} // namespace
} // namespace sluice::test
