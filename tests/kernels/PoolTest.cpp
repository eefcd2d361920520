#include "kernels/reference/Pools.h"
#include "tests/kernels/KernelCase.h"
#include "tests/kernels/PoolCase.h"

#include <cmath>
#include <limits>

namespace sluice::test {
namespace {

void check(const char *name, const PoolParams &p, std::vector<Bytes> inputs,
           const std::vector<double> &expected) {
  SCOPED_TRACE(name);
  Bytes before = poisoned(expected.size() * 4);
  inputs.push_back(before);
  auto after = runEverywhere({name, packParams(p), p.planes, inputs});
  expectNear(expected, before, after.back(), 1e-5);
}

void checkAll(PoolParams p) {
  std::mt19937 rng(5);
  std::vector<float> x(p.planes * volume(p.in));
  for (float &v : x) // many ties
    v = float(int(rng() % 5)) - 2;
  auto dy = randomFloats(rng, p.planes * volume(p.out));
  std::vector<double> y(dy.size()), dx(x.size());
  reference::maxPool(p, x.data(), y.data());
  check("max_pool_f32", p, {toBytes(x)}, y);
  reference::maxPoolGrad(p, x.data(), dy.data(), dx.data());
  check("max_pool_grad_f32", p, {toBytes(x), toBytes(dy)}, dx);
  for (bool include : {false, true}) {
    p.countIncludePad = include;
    reference::avgPool(p, x.data(), y.data());
    check("avg_pool_f32", p, {toBytes(x)}, y);
    reference::avgPoolGrad(p, dy.data(), dx.data());
    check("avg_pool_grad_f32", p, {toBytes(dy)}, dx);
  }
}

TEST(Pool, TwoByTwo) { checkAll(pool(3, {{8, 2, 2}, {10, 2, 2}})); }
TEST(Pool, TwoByTwoInVectors) {
  checkAll(pool(3, {{8, 2, 2}, {16, 2, 2}}));
  checkAll(pool(3, {{9, 2, 2}, {29, 2, 2}})); // a row and a column left over
  checkAll(pool(2, {{4, 2, 2}, {50, 2, 2}}));
  for (int64_t width = 0; width < 18; ++width)
    checkAll(pool(2, {{5, 2, 2}, {width, 2, 2}}));
}
TEST(Pool, LongRows) { checkAll(pool(1, {{3, 2}, {200, 3, 1, 1, 1, 1}})); }
TEST(Pool, Overlapping) { checkAll(pool(3, {{9, 3, 2, 1, 1, 1}, {21, 3, 1, 1, 1, 1}})); }
TEST(Pool, CeilModeAndUnevenPads) {
  checkAll(pool(2, {{8, 3, 2, 1, 0, 1, true}, {9, 2, 2, 1, 1, 0, true}}));
}
TEST(Pool, Dilations) { checkAll(pool(2, {{11, 3, 2, 2, 2, 1}, {12, 2, 3, 3, 1, 2}})); }
TEST(Pool, OneAndThreeDimensions) {
  checkAll(pool(2, {{30, 4, 3, 1, 1, 2}}));
  checkAll(pool(2, {{4, 2, 2}, {5, 3, 1, 1, 1, 1}, {6, 2, 1}}));
}
TEST(Pool, WholePlane) { checkAll(pool(5, {{7, 7}, {7, 7}})); }
TEST(Pool, Empty) {
  checkAll(pool(0, {{7, 3}, {7, 3}}));
  checkAll(pool(2, {{2, 3}, {2, 3}}));
}

TEST(Pool, NanWinsAndKeepsItsGradient) {
  PoolParams p = pool(1, {{4, 2, 2}});
  float nan = std::numeric_limits<float>::quiet_NaN(), low = -INFINITY;
  auto x = toBytes<float>({1, nan, low, low});
  auto y = runEverywhere({"max_pool_f32", packParams(p), 1, {x, poisoned(8)}})[1];
  EXPECT_TRUE(std::isnan(fromBytes<float>(y)[0]));
  EXPECT_EQ(fromBytes<float>(y)[1], low);
  auto dx = runEverywhere({"max_pool_grad_f32",
                           packParams(p),
                           1,
                           {x, toBytes<float>({3, 4}), poisoned(16)}})[2];
  EXPECT_EQ(fromBytes<float>(dx), (std::vector<float>{0, 3, 4, 0}));
}

TEST(Pool, NanInVectors) {
  float nan = std::numeric_limits<float>::quiet_NaN();
  PoolParams p = pool(1, {{2, 2, 2}, {16, 2, 2}});
  std::vector<float> x(32, 1), dy(8, 1), dx(32, 0);
  x[3] = x[18] = nan; // both in window 1: the first wins
  for (int64_t o = 0; o < 8; ++o)
    dx[2 * o + (o == 1)] = 1;
  auto y =
      runEverywhere({"max_pool_f32", packParams(p), 1, {toBytes(x), poisoned(32)}})[1];
  EXPECT_TRUE(std::isnan(fromBytes<float>(y)[1]));
  EXPECT_EQ(fromBytes<float>(y)[2], 1);
  auto after = runEverywhere({"max_pool_grad_f32",
                              packParams(p),
                              1,
                              {toBytes(x), toBytes(dy), poisoned(128)}})[2];
  EXPECT_EQ(fromBytes<float>(after), dx);
}

/// Planes kept with their pads, and one too large for that.
TEST(Pool, WithPads) {
  checkAll(pool(3, {{16, 3, 2, 1, 1, 1}, {16, 3, 2, 1, 1, 1}}));
  checkAll(pool(2, {{7, 3, 2, 1, 1, 1}, {9, 3, 2, 1, 1, 1}}));
  checkAll(pool(2, {{5, 3, 1, 1, 1, 1}, {23, 5, 1, 2, 4, 4}}));
  checkAll(pool(1, {{130, 3, 2, 1, 1, 1}, {150, 3, 2, 1, 1, 1}}));
}

TEST(Pool, LowestValuesAndNanBesidePads) {
  float nan = std::numeric_limits<float>::quiet_NaN(), low = -INFINITY;
  PoolParams p = pool(1, {{3, 3, 2, 1, 1, 1}, {5, 3, 2, 1, 1, 1}}); // 2 x 3 windows
  std::vector<float> x{low, low, 1, nan, 2, low, low, 1, 1, nan, 0, 0, 0, 0, 5};
  std::vector<float> dy{1, 2, 4, 8, 16, 32}, dx(15, 0);
  dx[0] += 1;     // nothing above -inf: the first position inside
  dx[3] += 2 + 4; // the first NaN of both
  dx[10] += 8;    // the first of two maxima
  dx[7] += 16;    // the first of two again
  dx[9] += 32;    // a NaN
  auto after = runEverywhere({"max_pool_grad_f32",
                              packParams(p),
                              1,
                              {toBytes(x), toBytes(dy), poisoned(60)}})[2];
  auto got = fromBytes<float>(after);
  for (size_t i = 0; i < dx.size(); ++i)
    EXPECT_EQ(got[i], dx[i]) << i;
}

} // namespace
} // namespace sluice::test
