// Products of bf16 by dot products of pairs have the bits of the level below, whatever
// the values: the order of sums, odd lengths, denormals, infinities. (Products that pack
// as they go are in GemmHalfTest; here B is packed ahead, by the level itself.)

#include "tests/kernels/GemmCase.h"
#include "tests/kernels/HalfFormats.h"

namespace sluice::test {
namespace {

class GemmDots : public testing::Test {
protected:
  void SetUp() override {
    if (!hasLevel(FeatureLevel::Dots))
      GTEST_SKIP() << "this processor lacks avx512_bf16";
  }
};

/// Bit patterns of bf16 with exponents from [low, high).
Bytes halves(std::mt19937 &rng, int64_t count, uint32_t low, uint32_t high) {
  std::vector<uint16_t> words(count);
  for (uint16_t &w : words)
    w = static_cast<uint16_t>((rng() & 0x807f) | (low + rng() % (high - low)) << 7);
  return toBytes(words);
}

Bytes packed(const GemmParams &p, const Bytes &b, FeatureLevel level) {
  GemmPackBParams pack{p.n,       p.k,    p.batch0, p.batch1, p.bBatch0,
                       p.bBatch1, p.bRow, p.bCol,   p.bType,  p.aType};
  return runOn({findBuiltinKernel("gemm_pack_b_f32", level)},
               {"gemm_pack_b_f32",
                packParams(pack),
                gemmPackBUnits(pack),
                {b, poisoned(gemmPackedBytes(pack))}})[1];
}

/// The product with its B packed by the same level.
Bytes product(const GemmParams &p, const Bytes &a, const Bytes &b, const Bytes &c,
              FeatureLevel level) {
  GemmParams q = p;
  q.bBatch1 = gemmPackedFloats(p.n, p.k), q.bBatch0 = q.bBatch1 * p.batch1;
  return runOn({findBuiltinKernel("gemm_packed_f32", level)},
               {"gemm_packed_f32",
                packParams(q),
                gemmUnits(q),
                {a, packed(p, b, level), c, {}}})[2];
}

void expectSameBits(GemmParams p, uint32_t low, uint32_t high) {
  p.aType = p.bType = format::kBf16;
  std::mt19937 rng(p.m + 100 * p.n + 10000 * p.k + low);
  Bytes a = halves(rng, sizeA(p), low, high), b = halves(rng, sizeB(p), low, high);
  a.reserve(1), b.reserve(1); // rows of nothing are somewhere
  for (int64_t type : {format::kF32, format::kBf16})
    for (int64_t accumulate : {0, 1}) {
      p.cType = type, p.accumulate = accumulate;
      Bytes c = accumulate ? stored(randomFloats(rng, sizeC(p)), type)
                           : poisoned(sizeC(p) * formatBytes(type));
      SCOPED_TRACE(testing::Message() << p.m << "x" << p.n << "x" << p.k << " type "
                                      << type << " accumulate " << accumulate);
      EXPECT_EQ(product(p, a, b, c, FeatureLevel::Dots),
                product(p, a, b, c, FeatureLevel::V4));
      KernelCase direct{"gemm_f32", packParams(p), gemmUnits(p), {a, b, c, {}}};
      EXPECT_EQ(runEverywhere(direct)[2], product(p, a, b, c, FeatureLevel::V3));
    }
}

constexpr uint32_t kLow = 120, kHigh = 134; ///< exponents of ordinary values

TEST_F(GemmDots, TailsAndStrides) {
  for (int64_t m : {0, 1, 12, 25})
    for (int64_t n : {1, 31, 33})
      for (int64_t k : {0, 1, 2, 17, 257})
        for (bool trans : {false, true})
          expectSameBits(test::product(m, n, k, trans, !trans), kLow, kHigh);
}

TEST_F(GemmDots, BatchesAndManyRows) {
  expectSameBits(test::product(13, 33, 20, false, true, 2, 3), kLow, kHigh);
  expectSameBits(test::product(300, 600, 515), kLow, kHigh);
}

/// Sums of values around the smallest normal, with denormal operands among them.
TEST_F(GemmDots, DenormalsAreZerosOnEveryLevel) {
  expectSameBits(test::product(40, 40, 33), 0, 2);
  expectSameBits(test::product(40, 40, 33), 55, 72);
  expectSameBits(test::product(5, 40, 33), 0, 2); // rows of B in place
  expectSameBits(test::product(17, 64, 33), 55, 72);
}

TEST_F(GemmDots, InfinitiesAndOverflow) {
  expectSameBits(test::product(20, 36, 2), 180, 255);
}

} // namespace
} // namespace sluice::test
