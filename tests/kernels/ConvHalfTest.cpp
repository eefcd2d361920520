// Convolutions of 16-bit operands: the bits of the f32 kernels on the widened operands,
// rounded once where the result has 16 bits too.

#include "tests/kernels/ConvCase.h"
#include "tests/kernels/HalfFormats.h"

namespace sluice::test {
namespace {

Bytes randomStored(std::mt19937 &rng, int64_t count, int64_t type) {
  return stored(randomFloats(rng, count), type);
}

struct Data {
  Bytes x, w, dy;
  Data(const ConvGeometry &g, int64_t type) {
    std::mt19937 rng(g.c * 7 + g.m);
    x = randomStored(rng, g.n * g.c * volume(g.in), type);
    w = randomStored(rng, g.m * (g.c / g.groups) * volume(g.kernel), type);
    dy = randomStored(rng, g.n * g.m * volume(g.out), type);
  }
  Data wide(int64_t type) const {
    Data d = *this;
    d.x = widened(x, type), d.w = widened(w, type), d.dy = widened(dy, type);
    return d;
  }
};

/// What a kernel stores as `type` where the f32 one gives `sums`.
Bytes rounded(const Bytes &sums, int64_t type) {
  return stored(fromBytes<float>(sums), type);
}

Bytes runConv(const ConvGeometry &g, bool grad, int64_t channels, int64_t operands,
              int64_t result, const Data &d, int64_t images = 0) {
  ConvParams p{g, channels, operands, result, images, operands};
  int64_t outputs = g.n * (grad ? g.c * volume(g.in) : g.m * volume(g.out));
  return runEverywhere(
      {grad ? "conv_input_grad_f32" : "conv_forward_f32",
       packParams(p),
       grad ? convInputGradUnits(p) : convForwardUnits(p),
       {grad ? d.dy : d.x, d.w, poisoned(outputs * formatBytes(result)), {}}})[2];
}

Bytes runWeightGrad(ConvWeightGradParams p, int64_t type, int64_t result, const Data &d) {
  p.xType = p.dyType = type;
  auto partial = runEverywhere({"conv_weight_grad_f32",
                                packParams(p),
                                convWeightGradUnits(p),
                                {d.x, d.dy, poisoned(convPartialBytes(p)), {}}})[2];
  int64_t cols = p.g.c / p.g.groups * volume(p.g.kernel);
  SumSlicesParams sum{p.g.m, cols, p.slices, cols, 0, 3, result};
  return runEverywhere({"sum_slices_f32",
                        packParams(sum),
                        sumSlicesUnits(sum),
                        {partial, poisoned(p.g.m * cols * formatBytes(result))}})[1];
}

void checkAll(const ConvGeometry &g) {
  SCOPED_TRACE(testing::Message() << "n " << g.n << " c " << g.c << " m " << g.m
                                  << " groups " << g.groups << " in " << g.in[1] << "x"
                                  << g.in[2] << " out " << g.out[1] << "x" << g.out[2]);
  for (int64_t type : kHalfFormats) {
    Data d(g, type), wide = d.wide(type);
    for (bool grad : {false, true}) {
      SCOPED_TRACE(grad ? "input gradient" : "forward");
      int64_t channels = grad ? g.c : g.m;
      int64_t few = channels % 5 == 0 && channels ? channels / 5 : 1;
      Bytes sums = runConv(g, grad, std::max<int64_t>(channels, 1), 0, 0, wide);
      EXPECT_EQ(runConv(g, grad, std::max<int64_t>(channels, 1), type, 0, d), sums);
      for (int64_t unit : {std::max<int64_t>(channels, 1), few})
        for (int64_t images : {int64_t{0}, g.n})
          EXPECT_EQ(runConv(g, grad, unit, type, type, d, images), rounded(sums, type))
              << unit << " channels and " << images << " images a unit";
      EXPECT_EQ(runConv(g, grad, few, 0, type, wide), rounded(sums, type));
    }
    ConvWeightGradParams planned = planConvWeightGrad(g), gathered = planned;
    gathered.unitCols = 320; // too many for images kept with pads
    for (const ConvWeightGradParams &p : {planned, gathered}) {
      Bytes sums = runWeightGrad(p, format::kF32, format::kF32, wide);
      EXPECT_EQ(runWeightGrad(p, type, format::kF32, d), sums);
      EXPECT_EQ(runWeightGrad(p, type, type, d), rounded(sums, type));
    }
  }
}

TEST(ConvHalf, Plain3x3) {
  checkAll(geometry(2, 5, 14, 1, {{9, 3, 1, 1, 1, 1}, {11, 3, 1, 1, 1, 1}}));
}

TEST(ConvHalf, OneByOneWithoutPads) {
  checkAll(geometry(2, 30, 13, 1, {{7, 1}, {7, 1}}));
  checkAll(geometry(1, 300, 10, 1, {{8, 1}, {9, 1}})); // two blocks of the sum
}

TEST(ConvHalf, StridesDilationsAndUnevenPads) {
  checkAll(geometry(2, 3, 5, 1, {{11, 3, 2, 1, 1, 0}, {13, 2, 3, 1, 0, 2}}));
  checkAll(geometry(1, 3, 5, 1, {{11, 3, 2, 3, 2, 1}, {13, 3, 4, 2, 3, 0}}));
  checkAll(geometry(1, 2, 2, 1, {{5, 2, 3, 1}, {5, 1, 4, 1}})); // skips inputs
}

TEST(ConvHalf, GroupsAndOtherRanks) {
  checkAll(geometry(2, 6, 9, 3, {{6, 3, 1, 1, 1, 1}, {6, 3, 2, 1, 1, 1}}));
  checkAll(geometry(2, 3, 4, 1, {{40, 5, 2, 1, 2, 2}}));
  checkAll(geometry(1, 2, 3, 1, {{5, 3, 1, 1, 1, 1}, {4, 2, 2}, {6, 3, 1, 2, 2, 2}}));
}

TEST(ConvHalf, ManyChannelsCrossBlocks) {
  checkAll(geometry(2, 40, 30, 1, {{6, 3, 1, 1, 1, 1}, {7, 3, 1, 1, 1, 1}}));
}

/// Results in pieces: rows of a plane, parts of a row, planes of a volume.
TEST(ConvHalf, ResultsLargerThanTheSums) {
  checkAll(geometry(1, 30, 20, 1, {{93, 3, 1, 1, 1, 1}, {101, 3, 1, 1, 1, 1}}));
  checkAll(geometry(1, 2, 10, 1, {{40000, 3, 2, 1, 1, 1}}));
  checkAll(geometry(1, 2, 12, 1, {{3, 2}, {100, 3, 1, 1, 1, 1}, {110, 2, 1, 2, 1, 1}}));
}

/// More sums than fit: images one by one after all.
TEST(ConvHalf, UnitsOfImages) {
  checkAll(geometry(7, 5, 15, 1, {{2, 3, 1, 1, 1, 1}, {3, 3, 1, 1, 1, 1}}));
  checkAll(geometry(3, 2, 300, 1, {{30, 3, 1, 1, 1, 1}, {20, 3, 2, 1, 1, 1}}));
}

TEST(ConvHalf, EmptyAndTiny) {
  checkAll(geometry(0, 3, 4, 1, {{5, 3}, {5, 3}}));
  checkAll(geometry(2, 0, 4, 1, {{5, 3}, {5, 3}}));
  checkAll(geometry(1, 1, 1, 1, {{1, 1}, {1, 1}}));
  checkAll(geometry(1, 2, 2, 1, {{2, 3}, {2, 3}})); // kernel larger than x: no outputs
}

Bytes runDepthwise(const char *name, const ConvGeometry &g, int64_t units, int64_t type,
                   int64_t result, const Bytes &a, const Bytes &b, int64_t outputs) {
  DepthwiseParams p{g, type, type, result};
  std::vector<Bytes> operands{a, b, poisoned(outputs * formatBytes(result))};
  bool inputGrad = std::string(name) == "depthwise_input_grad_f32";
  if (depthwiseWorkerBytes(p, inputGrad) > 0)
    operands.push_back({});
  return runEverywhere({name, packParams(p), units, operands})[2];
}

void checkDepthwise(const ConvGeometry &g) {
  ASSERT_TRUE(canBeDepthwise(g));
  for (int64_t type : kHalfFormats) {
    Data d(g, type), wide = d.wide(type);
    auto check = [&](const char *name, int64_t units, Bytes Data::*a, Bytes Data::*b,
                     int64_t outputs) {
      SCOPED_TRACE(name);
      Bytes sums = runDepthwise(name, g, units, 0, 0, wide.*a, wide.*b, outputs);
      EXPECT_EQ(runDepthwise(name, g, units, type, 0, d.*a, d.*b, outputs), sums);
      EXPECT_EQ(runDepthwise(name, g, units, type, type, d.*a, d.*b, outputs),
                rounded(sums, type));
    };
    check("depthwise_forward_f32", g.n * g.m, &Data::x, &Data::w, d.dy.size() / 2);
    check("depthwise_input_grad_f32", g.n * g.c, &Data::dy, &Data::w, d.x.size() / 2);
    // Its parameters are laid out alike: types of both operands and of the result.
    check("depthwise_weight_grad_f32", g.m, &Data::x, &Data::dy, d.w.size() / 2);
  }
}

TEST(ConvHalf, Depthwise) {
  checkDepthwise(geometry(2, 5, 5, 5, {{9, 3, 1, 1, 1, 1}, {37, 3, 1, 1, 1, 1}}));
  checkDepthwise(geometry(2, 3, 6, 3, {{9, 3, 2, 1, 1, 0}, {40, 5, 2, 1, 2, 2}}));
  checkDepthwise(geometry(1, 2, 2, 2, {{5, 3, 1, 2, 1, 1}, {130, 5, 1, 1, 2, 2}}));
  checkDepthwise(geometry(1, 3, 3, 3, {{50, 20}}));
  // Too many weights, and planes too large, to keep widened.
  checkDepthwise(geometry(1, 2, 2, 2, {{20, 17, 1, 1, 8, 8}, {22, 16}}));
  checkDepthwise(geometry(1, 1, 1, 1, {{130, 3, 1, 1, 1, 1}, {150, 3, 1, 1, 1, 1}}));
  checkDepthwise(geometry(1, 1, 2, 1, {{260, 3, 2}, {270, 3, 2, 1, 1, 1}}));
}

} // namespace
} // namespace sluice::test
