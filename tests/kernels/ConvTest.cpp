#include "kernels/reference/Products.h"
#include "tests/kernels/ConvCase.h"
#include "tests/kernels/KernelCase.h"

#include <cmath>

namespace sluice::test {
namespace {

struct Data {
  std::vector<float> x, w, dy;
  explicit Data(const ConvGeometry &g) {
    std::mt19937 rng(g.c * 7 + g.m);
    x = randomFloats(rng, g.n * g.c * volume(g.in));
    w = randomFloats(rng, g.m * (g.c / g.groups) * volume(g.kernel));
    dy = randomFloats(rng, g.n * g.m * volume(g.out));
  }
};

constexpr double kTolerance = 2e-4;

/// Of units: one, some that do not divide all, all.
std::vector<int64_t> imagesOfUnits(const ConvGeometry &g) {
  return g.n < 2 ? std::vector<int64_t>{0} : std::vector<int64_t>{0, g.n - 1, g.n};
}

Bytes untouched(size_t floats) { return poisoned(floats * 4); }

void checkForward(const ConvGeometry &g, const Data &d) {
  std::vector<double> expected(d.dy.size());
  reference::convForward(g, d.x.data(), d.w.data(), expected.data());
  Bytes first;
  for (int64_t channels = 1; channels <= g.m; ++channels) {
    if (g.m % channels)
      continue;
    for (int64_t images : imagesOfUnits(g)) {
      ConvParams p{g, channels};
      p.unitImages = images;
      Bytes before = untouched(d.dy.size());
      auto y = runEverywhere({"conv_forward_f32",
                              packParams(p),
                              convForwardUnits(p),
                              {toBytes(d.x), toBytes(d.w), before, {}}})[2];
      expectNear(expected, before, y, kTolerance);
      if (first.empty())
        first = y;
      EXPECT_EQ(y, first) << "units of " << channels << " channels, " << images
                          << " images";
    }
  }
}

void checkInputGrad(const ConvGeometry &g, const Data &d) {
  std::vector<double> expected(d.x.size());
  reference::convInputGrad(g, d.dy.data(), d.w.data(), expected.data());
  Bytes first;
  for (int64_t channels :
       {std::max<int64_t>(g.c, 1), g.c && g.c % 5 == 0 ? g.c / 5 : 1}) {
    for (int64_t images : imagesOfUnits(g)) {
      ConvParams p{g, channels};
      p.unitImages = images;
      Bytes before = untouched(d.x.size());
      auto dx = runEverywhere({"conv_input_grad_f32",
                               packParams(p),
                               convInputGradUnits(p),
                               {toBytes(d.dy), toBytes(d.w), before, {}}})[2];
      expectNear(expected, before, dx, kTolerance);
      if (first.empty())
        first = dx;
      EXPECT_EQ(dx, first) << "units of " << channels << " channels, " << images
                           << " images";
    }
  }
}

void checkWeightGrad(const ConvGeometry &g, const Data &d) {
  std::vector<double> expected(d.w.size());
  reference::convWeightGrad(g, d.x.data(), d.dy.data(), expected.data());
  ConvWeightGradParams planned = planConvWeightGrad(g), sliced = planned,
                       gathered = planned;
  sliced.sliceImages = 1, sliced.slices = std::max<int64_t>(1, g.n);
  sliced.unitRows = 5, sliced.unitCols = 11;
  gathered.unitCols = 320; // too many for images kept with pads
  EXPECT_LT(convWeightGradImageFloats(gathered), 0);
  std::vector<Bytes> results;
  for (const ConvWeightGradParams &p : {planned, gathered, sliced}) {
    auto partial = runEverywhere(
        {"conv_weight_grad_f32",
         packParams(p),
         convWeightGradUnits(p),
         {toBytes(d.x), toBytes(d.dy), poisoned(convPartialBytes(p)), {}}})[2];
    int64_t cols = g.c / g.groups * volume(g.kernel);
    SumSlicesParams sum{g.m, cols, p.slices, cols, 0, 3};
    Bytes before = untouched(d.w.size());
    auto dw = runEverywhere(
        {"sum_slices_f32", packParams(sum), sumSlicesUnits(sum), {partial, before}})[1];
    expectNear(expected, before, dw, kTolerance * 4);
    results.push_back(dw);
  }
  EXPECT_EQ(results[0], results[1]) << "gathered differs";
}

/// dw tile by tile has the bits of the whole one.
void checkGradTiles(const ConvGeometry &g, const Data &d, int64_t unitRows,
                    int64_t unitCols) {
  auto p = planConvWeightGrad(g);
  p.sliceImages = g.n, p.slices = 1, p.unitRows = unitRows, p.unitCols = unitCols;
  auto run = [&](Bytes dw) {
    return runEverywhere({"conv_weight_grad_f32",
                          packParams(p),
                          convWeightGradUnits(p),
                          {toBytes(d.x), toBytes(d.dy), dw, {}}})[2];
  };
  auto whole = fromBytes<uint32_t>(run(poisoned(convPartialBytes(p))));
  p.tiles = 1;
  int64_t cols = g.c * volume(g.kernel), columns = (cols + unitCols - 1) / unitCols;
  int64_t tile = unitRows * unitCols;
  auto after = fromBytes<uint32_t>(run(poisoned(convWeightGradUnits(p) * tile * 4)));
  std::vector<uint32_t> expected(after.size(), kPoison);
  for (int64_t i = 0; i < g.m; ++i)
    for (int64_t j = 0; j < cols; ++j) {
      int64_t unit = i / unitRows * columns + j / unitCols;
      expected[unit * tile + i % unitRows * unitCols + j % unitCols] =
          whole[i * cols + j];
    }
  EXPECT_EQ(after, expected);
}

void checkAll(const ConvGeometry &g) {
  SCOPED_TRACE(testing::Message() << "n " << g.n << " c " << g.c << " m " << g.m
                                  << " groups " << g.groups << " in " << g.in[1] << "x"
                                  << g.in[2] << " out " << g.out[1] << "x" << g.out[2]);
  Data d(g);
  checkForward(g, d);
  checkInputGrad(g, d);
  checkWeightGrad(g, d);
}

TEST(Conv, TilesOfTheWeightGradient) {
  ConvGeometry g = geometry(3, 5, 14, 1, {{9, 3, 1, 1, 1, 1}, {11, 3, 1, 1, 1, 1}});
  checkGradTiles(g, Data(g), 12, 32);
  checkGradTiles(g, Data(g), 5, 11);
  checkGradTiles(g, Data(g), 14, 320);
}

TEST(Conv, Plain3x3) {
  checkAll(geometry(2, 5, 14, 1, {{9, 3, 1, 1, 1, 1}, {11, 3, 1, 1, 1, 1}}));
}

TEST(Conv, OneByOne) { checkAll(geometry(2, 30, 13, 1, {{7, 1}, {7, 1}})); }

TEST(Conv, StridesDilationsAndUnevenPads) {
  checkAll(geometry(2, 3, 5, 1, {{11, 3, 2, 1, 1, 0}, {13, 2, 3, 1, 0, 2}}));
  checkAll(geometry(1, 3, 5, 1, {{11, 3, 2, 3, 2, 1}, {13, 3, 4, 2, 3, 0}}));
  checkAll(geometry(1, 2, 2, 1, {{5, 2, 3, 1}, {5, 1, 4, 1}})); // skips inputs
}

TEST(Conv, Groups) {
  checkAll(geometry(2, 6, 9, 3, {{6, 3, 1, 1, 1, 1}, {6, 3, 2, 1, 1, 1}}));
}

/// Planes much smaller than a tile: images share it.
TEST(Conv, TinyPlanesOfManyImages) {
  checkAll(geometry(9, 13, 14, 1, {{1, 3, 1, 1, 1, 1}, {1, 3, 1, 1, 1, 1}}));
  checkAll(geometry(5, 40, 13, 1, {{2, 3, 1, 1, 1, 1}, {2, 3, 1, 1, 1, 1}}));
  checkAll(geometry(5, 8, 12, 2, {{5, 3, 2, 1, 1, 1}, {4, 2, 2, 1, 0, 0}}));
}

TEST(Conv, UnitsOfSmallPlanesHaveColumnsEnough) {
  auto columns = [](int64_t n, int64_t size) {
    auto p = planConvForward(
        geometry(n, 64, 64, 1, {{size, 3, 1, 1, 1, 1}, {size, 3, 1, 1, 1, 1}}), 0, 0, 0);
    return p.unitImages * size * size;
  };
  EXPECT_EQ(columns(16, 1), 16);
  EXPECT_GE(columns(64, 2), 64);
  EXPECT_GE(columns(16, 8), 128);
  EXPECT_EQ(columns(64, 56), 56 * 56);
}

/// Positions of the kernel that are outside for every result are left out: of 3 x 3 over
/// one element, all but the middle.
TEST(Conv, KernelsLargerThanPlanes) {
  checkAll(geometry(6, 30, 14, 1, {{1, 5, 1, 1, 2, 2}, {2, 5, 1, 1, 2, 2}}));
  checkAll(geometry(3, 9, 14, 1, {{2, 4, 2, 3, 5, 5}, {1, 3, 2, 1, 1, 1}}));
  checkAll(geometry(2, 3, 5, 1, {{1, 7, 3, 2, 6, 6}, {3, 7, 2, 1, 3, 3}}));
}

/// Planes that are too large for the workspace even for one result.
TEST(Conv, KernelsThatSpanFar) {
  checkAll(geometry(1, 3, 2, 1, {{30003, 2, 1, 30000}, {2, 1}}));
}

TEST(Conv, OneAndThreeDimensions) {
  checkAll(geometry(2, 3, 4, 1, {{40, 5, 2, 1, 2, 2}}));
  checkAll(geometry(1, 2, 3, 1, {{5, 3, 1, 1, 1, 1}, {4, 2, 2}, {6, 3, 1, 2, 2, 2}}));
}

TEST(Conv, ManyChannelsCrossBlocks) {
  checkAll(geometry(2, 40, 30, 1, {{6, 3, 1, 1, 1, 1}, {7, 3, 1, 1, 1, 1}}));
}

TEST(Conv, PadsBeyondTheKernel) {
  checkAll(geometry(2, 70, 3, 1, {{3, 1, 1, 1, 5, 4}, {2, 1, 1, 1, 3, 6}}));
  checkAll(geometry(1, 20, 3, 1, {{1, 2, 1, 1, 7, 0}, {4, 2, 1, 2, 0, 9}}));
}

TEST(Conv, ImagesTooLargeToKeep) {
  checkAll(geometry(1, 3, 2, 1, {{300, 5, 1, 1, 2, 2}, {400, 5, 1, 1, 2, 2}}));
}

TEST(Conv, EmptyAndTiny) {
  checkAll(geometry(0, 3, 4, 1, {{5, 3}, {5, 3}}));
  checkAll(geometry(2, 0, 4, 1, {{5, 3}, {5, 3}}));
  checkAll(geometry(1, 1, 1, 1, {{1, 1}, {1, 1}}));
  checkAll(geometry(1, 2, 2, 1, {{1, 3, 1, 1, 1, 1}, {1, 3, 1, 1, 1, 1}}));
  checkAll(geometry(1, 2, 2, 1, {{2, 3}, {2, 3}})); // kernel larger than x: no outputs
}

TEST(Conv, RandomGeometries) {
  std::mt19937 rng(11);
  auto pick = [&](int64_t low, int64_t high) {
    return low + int64_t(rng() % (high - low + 1));
  };
  for (int i = 0; i < 25; ++i) {
    int64_t groups = pick(1, 3);
    auto dim = [&] {
      return Spatial{pick(1, 12), pick(1, 4), pick(1, 3),
                     pick(1, 2),  pick(0, 3), pick(0, 3)};
    };
    checkAll(geometry(pick(1, 3), groups * pick(1, 9), groups * pick(1, 9), groups,
                      {dim(), dim()}));
  }
}

void checkDepthwise(const ConvGeometry &g) {
  ASSERT_TRUE(canBeDepthwise(g));
  Data d(g);
  auto params = packParams(DepthwiseParams{g});
  std::vector<double> y(d.dy.size()), dx(d.x.size()), dw(d.w.size());
  reference::convForward(g, d.x.data(), d.w.data(), y.data());
  reference::convInputGrad(g, d.dy.data(), d.w.data(), dx.data());
  reference::convWeightGrad(g, d.x.data(), d.dy.data(), dw.data());
  auto check = [&](const char *name, int64_t units, const auto &a, const auto &b,
                   const std::vector<double> &expected) {
    SCOPED_TRACE(name);
    Bytes before = untouched(expected.size());
    auto after = runEverywhere({name, params, units, {toBytes(a), toBytes(b), before}});
    expectNear(expected, before, after[2], kTolerance);
  };
  check("depthwise_forward_f32", g.n * g.m, d.x, d.w, y);
  check("depthwise_input_grad_f32", g.n * g.c, d.dy, d.w, dx);
  check("depthwise_weight_grad_f32", g.m, d.x, d.dy, dw);
}

TEST(Depthwise, IsForSmallGroupsOnly) {
  EXPECT_TRUE(isDepthwise(geometry(1, 8, 16, 8, {{5, 3}, {5, 3}})));
  EXPECT_FALSE(isDepthwise(geometry(1, 1, 32, 1, {{5, 3}, {5, 3}}))); // fills tiles
  EXPECT_FALSE(isDepthwise(geometry(1, 8, 16, 4, {{5, 3}, {5, 3}})));
}

TEST(Depthwise, AllGeometries) {
  checkDepthwise(geometry(2, 5, 5, 5, {{9, 3, 1, 1, 1, 1}, {37, 3, 1, 1, 1, 1}}));
  checkDepthwise(geometry(2, 3, 6, 3, {{9, 3, 2, 1, 1, 0}, {40, 5, 2, 1, 2, 2}}));
  checkDepthwise(
      geometry(1, 2, 2, 2, {{4, 2, 1, 1}, {9, 3, 2, 2, 2, 3}, {5, 3, 3, 1, 3, 3}}));
  checkDepthwise(geometry(1, 1, 1, 1, {{1, 3, 1, 1, 1, 1}}));
  checkDepthwise(geometry(0, 4, 4, 4, {{3, 3}}));
}

} // namespace
} // namespace sluice::test
