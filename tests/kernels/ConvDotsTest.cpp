// Convolutions of bf16 by bf16 and their gradients have the same bits on every level,
// whatever the values: odd rows, denormals, infinities. The level of dot products of
// pairs is one of them where the processor has it.

#include "kernels/MatrixUnit.h"
#include "tests/kernels/ConvCase.h"
#include "tests/kernels/HalfFormats.h"

namespace sluice::test {
namespace {

/// Bit patterns of bf16 with exponents from [low, high).
Bytes halves(std::mt19937 &rng, int64_t count, uint32_t low, uint32_t high) {
  std::vector<uint16_t> words(count);
  for (uint16_t &w : words)
    w = static_cast<uint16_t>((rng() & 0x807f) | (low + rng() % (high - low)) << 7);
  return toBytes(words);
}

struct Data {
  Bytes x, w, dy;
  Data(const ConvGeometry &g, uint32_t low, uint32_t high) {
    std::mt19937 rng(g.c * 7 + g.m + low);
    x = halves(rng, g.n * g.c * volume(g.in), low, high);
    w = halves(rng, g.m * (g.c / g.groups) * volume(g.kernel), low, high);
    dy = halves(rng, g.n * g.m * volume(g.out), low, high);
  }
};

constexpr int64_t kBf16 = format::kBf16;

Bytes run(const char *name, const ConvParams &p, int64_t units, const Bytes &source,
          const Bytes &w, int64_t results) {
  return runEverywhere(
      {name,
       packParams(p),
       units,
       {source, w, poisoned(results * formatBytes(p.resultType)), {}}})[2];
}

/// runEverywhere expects the same bits of all levels.
void checkLevels(const ConvGeometry &g, uint32_t low = 120, uint32_t high = 134) {
  SCOPED_TRACE(testing::Message() << "n " << g.n << " c " << g.c << " m " << g.m
                                  << " out " << g.out[1] << "x" << g.out[2]);
  Data d(g, low, high);
  int64_t outputs = d.dy.size() / 2, inputs = d.x.size() / 2;
  for (int64_t type : {format::kF32, kBf16}) {
    ConvParams p = planConvForward(g, kBf16, kBf16, type);
    run("conv_forward_f32", p, convForwardUnits(p), d.x, d.w, outputs);
    p.unitImages = g.n;
    run("conv_forward_f32", p, convForwardUnits(p), d.x, d.w, outputs);
    p = planConvInputGrad(g, kBf16, kBf16, type);
    run("conv_input_grad_f32", p, convInputGradUnits(p), d.dy, d.w, inputs);
  }
  ConvWeightGradParams p = planConvWeightGrad(g), gathered = p;
  gathered.unitCols = 320; // too many for images kept with pads
  for (ConvWeightGradParams *q : {&p, &gathered}) {
    q->xType = q->dyType = kBf16;
    runEverywhere({"conv_weight_grad_f32",
                   packParams(*q),
                   convWeightGradUnits(*q),
                   {d.x, d.dy, poisoned(convPartialBytes(*q)), {}}});
  }
}

TEST(ConvDots, RowsOfAllLengths) {
  for (int64_t width = 1; width < 20; ++width)
    checkLevels(geometry(2, 3, 14, 1, {{5, 3, 1, 1, 1, 1}, {width, 3, 1, 1, 1, 1}}));
}

TEST(ConvDots, StridesDilationsGroupsAndRanks) {
  checkLevels(geometry(2, 3, 5, 1, {{11, 3, 2, 1, 1, 0}, {13, 2, 3, 1, 0, 2}}));
  checkLevels(geometry(3, 3, 40, 1, {{15, 7, 2, 1, 3, 3}, {17, 7, 2, 1, 3, 3}}));
  checkLevels(geometry(1, 3, 5, 1, {{11, 3, 2, 3, 2, 1}, {13, 3, 4, 2, 3, 0}}));
  checkLevels(geometry(2, 6, 9, 3, {{6, 3, 1, 1, 1, 1}, {6, 3, 2, 1, 1, 1}}));
  checkLevels(geometry(1, 2, 3, 1, {{5, 3, 1, 1, 1, 1}, {4, 2, 2}, {6, 3, 1, 2, 2, 2}}));
}

TEST(ConvDots, ManyChannelsAndImages) {
  checkLevels(geometry(20, 40, 37, 1, {{4, 3, 1, 1, 1, 1}, {4, 3, 1, 1, 1, 1}}));
  checkLevels(geometry(9, 300, 30, 1, {{1, 3, 1, 1, 1, 1}, {1, 3, 1, 1, 1, 1}}));
  checkLevels(geometry(2, 31, 30, 1, {{20, 1}, {21, 1}}));
}

TEST(ConvDots, EmptyAndTiny) {
  checkLevels(geometry(0, 3, 4, 1, {{5, 3}, {5, 3}}));
  checkLevels(geometry(1, 1, 1, 1, {{1, 1}, {1, 1}}));
  checkLevels(geometry(1, 2, 2, 1, {{2, 3}, {2, 3}})); // no outputs
}

/// Sums of values around the smallest normal, with denormal operands among them.
TEST(ConvDots, DenormalsAreZerosOnEveryLevel) {
  ConvGeometry g = geometry(2, 5, 14, 1, {{7, 3, 1, 1, 1, 1}, {9, 3, 1, 1, 1, 1}});
  checkLevels(g, 0, 2);
  checkLevels(g, 55, 72);
}

TEST(ConvDots, InfinitiesAndOverflow) {
  checkLevels(geometry(2, 2, 14, 1, {{3, 1}, {9, 1}}), 180, 255);
}

TEST(ConvDots, AreKnownToMultiplyPairs) {
  ConvGeometry g = geometry(1, 4, 4, 1, {{4, 3}, {4, 3}});
  for (int64_t type : {format::kF32, kBf16, format::kF16}) {
    ConvParams p = planConvForward(g, kBf16, type, kBf16);
    auto params = packParams(p);
    for (const char *name : {"conv_forward_f32", "conv_input_grad_f32"})
      EXPECT_EQ(multipliesBf16(name, params.data(), params.size()), type == kBf16);
    ConvWeightGradParams q = planConvWeightGrad(g);
    q.xType = kBf16, q.dyType = type;
    params = packParams(q);
    EXPECT_EQ(multipliesBf16("conv_weight_grad_f32", params.data(), params.size()),
              type == kBf16);
  }
}

} // namespace
} // namespace sluice::test
