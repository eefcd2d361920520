// Convolutions of bf16 by bf16 and their gradients on tiles: the order of sums they
// document, and double precision; the emulated unit and the code for the processor's.

#include "kernels/reference/Products.h"
#include "tests/kernels/ConvCase.h"
#include "tests/kernels/TileCase.h"

namespace sluice::test {
namespace {

constexpr int64_t kBf16 = format::kBf16;

struct Data {
  std::vector<float> x, w, dy;

  explicit Data(const ConvGeometry &g) {
    std::mt19937 rng(g.c * 7 + g.m);
    auto halves = [&](int64_t count) {
      return loaded(stored(randomFloats(rng, count), kBf16), kBf16);
    };
    x = halves(g.n * g.c * volume(g.in));
    w = halves(g.m * (g.c / g.groups) * volume(g.kernel));
    dy = halves(g.n * g.m * volume(g.out));
  }
};

Bytes runConv(bool grad, const ConvParams &p, const Data &d) {
  int64_t results = grad ? d.x.size() : d.dy.size();
  return runOnTiles({grad ? "conv_input_grad_f32" : "conv_forward_f32",
                     packParams(p),
                     grad ? convInputGradUnits(p) : convForwardUnits(p),
                     {stored(grad ? d.dy : d.x, kBf16),
                      stored(d.w, kBf16),
                      poisoned(results * formatBytes(p.resultType)),
                      {}}})[2];
}

void expectAlike(const std::vector<float> &values, const std::vector<double> &expected,
                 double unit, double terms) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_NEAR(values[i], expected[i],
                1e-6 * (4 + 2 * std::sqrt(terms)) + unit * std::fabs(expected[i]))
        << i;
}

void checkWeightGrad(const ConvGeometry &g, const Data &d) {
  std::vector<double> dw(d.w.size());
  reference::convWeightGrad(g, d.x.data(), d.dy.data(), dw.data());
  ConvWeightGradParams p = planConvWeightGrad(g);
  p.xType = p.dyType = kBf16;
  auto partial = fromBytes<float>(runOnTiles(
      {"conv_weight_grad_f32",
       packParams(p),
       convWeightGradUnits(p),
       {stored(d.x, kBf16), stored(d.dy, kBf16), poisoned(convPartialBytes(p)), {}}})[2]);
  std::vector<float> sums(d.w.size());
  for (size_t i = 0; i < partial.size(); ++i)
    sums[i % sums.size()] += partial[i];
  expectAlike(sums, dw, 0, double(g.n * volume(g.out)));
}

void checkAll(const ConvGeometry &g) {
  SCOPED_TRACE(testing::Message() << "n " << g.n << " c " << g.c << " m " << g.m
                                  << " out " << g.out[1] << "x" << g.out[2]);
  Data d(g);
  std::vector<double> y(d.dy.size()), dx(d.x.size());
  reference::convForward(g, d.x.data(), d.w.data(), y.data());
  reference::convInputGrad(g, d.dy.data(), d.w.data(), dx.data());
  double terms = double(std::max(g.c, g.m) * volume(g.kernel));
  for (int64_t type : {format::kF32, kBf16}) {
    double unit = type == kBf16 ? 0x1p-8 : 0;
    ConvParams p = planConvForward(g, kBf16, kBf16, type);
    expectAlike(loaded(runConv(false, p, d), type), y, unit, terms);
    p = planConvInputGrad(g, kBf16, kBf16, type);
    p.unitImages = g.n; // images that share tiles
    expectAlike(loaded(runConv(true, p, d), type), dx, unit, terms);
  }
  checkWeightGrad(g, d);
}

TEST(ConvTiles, RowsOfSeveralLengths) {
  for (int64_t width : {1, 2, 7, 16, 19})
    checkAll(geometry(2, 3, 14, 1, {{3, 3, 1, 1, 1, 1}, {width, 3, 1, 1, 1, 1}}));
}

TEST(ConvTiles, StridesDilationsGroupsAndRanks) {
  checkAll(geometry(2, 3, 5, 1, {{7, 3, 2, 1, 1, 0}, {9, 2, 3, 1, 0, 2}}));
  checkAll(geometry(1, 3, 33, 1, {{9, 5, 2, 1, 2, 2}, {7, 5, 2, 1, 2, 2}}));
  checkAll(geometry(1, 3, 5, 1, {{9, 3, 1, 2, 1, 1}, {8, 3, 2, 3, 3, 0}}));
  checkAll(geometry(2, 6, 9, 3, {{4, 3, 1, 1, 1, 1}, {5, 3, 2, 1, 1, 1}}));
  checkAll(geometry(1, 2, 3, 1, {{3, 2, 1, 1, 1, 1}, {4, 2, 2}, {5, 3, 1, 2, 2, 2}}));
}

TEST(ConvTiles, ManyChannelsAndImages) {
  checkAll(geometry(7, 40, 37, 1, {{2, 3, 1, 1, 1, 1}, {2, 3, 1, 1, 1, 1}}));
  checkAll(geometry(3, 270, 17, 1, {{1, 1}, {1, 1}})); // runs of k
  checkAll(geometry(1, 17, 300, 1, {{2, 1}, {3, 1}})); // blocks of rows
}

TEST(ConvTiles, EmptyAndTiny) {
  checkAll(geometry(0, 3, 4, 1, {{5, 3}, {5, 3}}));
  checkAll(geometry(1, 1, 1, 1, {{1, 1}, {1, 1}}));
  checkAll(geometry(1, 2, 2, 1, {{2, 3}, {2, 3}})); // no outputs
}

/// Products in the documented order of level `amx`.
struct Chain {
  std::vector<float> a, b;
  void add(float x, float y) { a.push_back(x), b.push_back(y); }
  float sum() const {
    GemmParams p;
    p.k = a.size(), p.aCol = p.bRow = 1;
    return chained(0, p, a.data(), b.data());
  }
};

/// A square kernel with a pad all around, which reaches every position.
TEST(ConvTiles, SumsAreInTheDocumentedOrder) {
  ConvGeometry g = geometry(2, 31, 5, 1, {{4, 3, 1, 1, 1, 1}, {5, 3, 1, 1, 1, 1}});
  Data d(g);
  ConvParams p = planConvForward(g, kBf16, kBf16, format::kF32);
  auto y = fromBytes<float>(runConv(false, p, d));
  auto dw = planConvWeightGrad(g);
  dw.xType = dw.dyType = kBf16, dw.slices = 1, dw.sliceImages = g.n;
  auto sums = fromBytes<float>(runOnTiles({"conv_weight_grad_f32",
                                           packParams(dw),
                                           convWeightGradUnits(dw),
                                           {stored(d.x, kBf16),
                                            stored(d.dy, kBf16),
                                            poisoned(convPartialBytes(dw)),
                                            {}}})[2]);
  auto source = [&](int64_t n, int64_t c, int64_t i, int64_t j) {
    bool inside = i >= 0 && j >= 0 && i < g.in[1] && j < g.in[2];
    return inside ? d.x[((n * g.c + c) * g.in[1] + i) * g.in[2] + j] : 0;
  };
  int64_t taps = 9, size = volume(g.out), width = g.out[2];
  for (int64_t at = 0; at < int64_t(y.size()); ++at) {
    int64_t n = at / size / g.m, m = at / size % g.m, o = at % size;
    Chain chain;
    for (int64_t k = 0; k < g.c * taps; ++k)
      chain.add(d.w[m * g.c * taps + k],
                source(n, k / taps, o / width + k % 9 / 3 - 1, o % width + k % 3 - 1));
    ASSERT_EQ(y[at], chain.sum()) << at;
  }
  for (int64_t at = 0; at < int64_t(sums.size()); at += 7) {
    int64_t m = at / taps / g.c, k = at % (taps * g.c);
    Chain chain;
    for (int64_t o = 0; o < g.n * size; ++o)
      chain.add(source(o / size, k / taps, o % size / width + k % 9 / 3 - 1,
                       o % width + k % 3 - 1),
                d.dy[(o / size * g.m + m) * size + o % size]);
    ASSERT_EQ(sums[at], chain.sum()) << at;
  }
}

/// Convolutions of other formats have the bits of the levels below.
TEST(ConvTiles, OtherFormatsAreThoseOfTheLevelBelow) {
  ConvGeometry g = geometry(2, 3, 5, 1, {{4, 3, 1, 1, 1, 1}, {5, 3, 1, 1, 1, 1}});
  Data d(g);
  ConvParams p = planConvForward(g, format::kF32, kBf16, format::kF32);
  KernelCase c{"conv_forward_f32",
               packParams(p),
               convForwardUnits(p),
               {toBytes(d.x), stored(d.w, kBf16), poisoned(d.dy.size() * 4), {}}};
  if (hasLevel(FeatureLevel::Dots))
    EXPECT_EQ(runOnTiles(c)[2], runEverywhere(c)[2]);
}

} // namespace
} // namespace sluice::test
