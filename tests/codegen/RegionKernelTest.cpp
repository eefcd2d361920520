// Kernels of every kind against the interpreter, on ordinary and edge shapes.
#include "tests/codegen/RegionCase.h"

#include <cmath>
#include <random>

using namespace mlir;
using namespace sluice;
using namespace sluice::test;

namespace {
const std::vector<int64_t> edgeSizes = {1, 15, 16, 17, 64, 100, 1003};

Value rowSum(GraphBuilder &b, Value x, Value like) {
  return b.broadcastLike(b.sum(x, {graph::tensorType(x).getRank() - 1}, true), like);
}

Values softmax(GraphBuilder &b, Value x, int64_t axis) {
  Value largest = b.broadcastLike(b.reduce(x, "max", {axis}, true), x);
  Value e = b.exp(b.sub(x, largest));
  return {b.div(e, b.broadcastLike(b.sum(e, {axis}, true), x))};
}

HostTensor randomIntegers(Shape shape, int64_t low, int64_t high, unsigned width = 64) {
  HostTensor tensor = integers(std::move(shape), {}, width);
  std::mt19937 generator(7);
  for (int64_t i = 0, size = tensor.size(); i < size; ++i)
    tensor.integers.push_back(low + static_cast<int64_t>(generator() % (high - low)));
  return tensor;
}
} // namespace

TEST(RegionKernel, Elementwise) {
  for (int64_t size : {1, 15, 16, 17, 64, 1003, 4096, 4097, 20000})
    check([](GraphBuilder &b,
             auto x) { return Values{b.mul(b.add(x[0], x[1]), x[0]), b.exp(x[1])}; },
          {uniform({size}, 1), uniform({size}, 2)});
}

TEST(RegionKernel, ScalarsOnly) {
  check([](GraphBuilder &b, auto x) { return Values{b.div(x[0], b.add(x[1], x[1]))}; },
        {uniform({}, 1), uniform({}, 2)});
}

TEST(RegionKernel, NothingToDoForEmptyTensors) {
  check([](GraphBuilder &b, auto x) { return Values{b.exp(x[0])}; }, {uniform({0, 5})});
  check([](GraphBuilder &b, auto x) { return softmax(b, x[0], 1); }, {uniform({0, 5})});
}

TEST(RegionKernel, ReductionsOverNothingAreNeutral) {
  check(
      [](GraphBuilder &b, auto x) {
        return Values{b.sum(x[0], {1}, false), b.reduce(x[0], "max", {1}, false)};
      },
      {uniform({3, 0})});
}

TEST(RegionKernel, BiasAndGelu) {
  for (int64_t rows : {1, 3})
    for (int64_t columns : edgeSizes)
      check(
          [](GraphBuilder &b, auto x) {
            Value biased = b.add(x[0], b.broadcastLike(x[1], x[0]));
            return Values{b.make<graph::GeluOp>(biased, /*tanh_form=*/true)};
          },
          {uniform({rows, columns}, 1), uniform({columns}, 2)});
}

TEST(RegionKernel, Softmax) {
  for (int64_t rows : {1, 3})
    for (int64_t columns : edgeSizes)
      check([](GraphBuilder &b, auto x) { return softmax(b, x[0], 1); },
            {uniform({rows, columns})});
}

TEST(RegionKernel, SoftmaxAlongAMiddleAxis) {
  for (int64_t columns : edgeSizes)
    check([](GraphBuilder &b, auto x) { return softmax(b, x[0], 1); },
          {uniform({2, 5, columns})});
}

TEST(RegionKernel, LayerNorm) {
  for (int64_t columns : edgeSizes)
    check(
        [&](GraphBuilder &b, auto x) {
          Value mean = b.scale(rowSum(b, x[0], x[0]), 1.0 / columns);
          Value d = b.sub(x[0], mean);
          Value variance = b.scale(rowSum(b, b.mul(d, d), d), 1.0 / columns);
          Value rstd = b.rsqrt(b.shift(variance, 1e-5));
          Value scaled = b.mul(b.mul(d, rstd), b.broadcastLike(x[1], x[0]));
          return Values{b.add(scaled, b.broadcastLike(x[2], x[0]))};
        },
        {uniform({3, columns}, 1), uniform({columns}, 2), uniform({columns}, 3)});
}

TEST(RegionKernel, PerRowResults) {
  check(
      [](GraphBuilder &b, auto x) {
        Value sum = b.sum(x[0], {1}, true);
        Value y = b.mul(x[0], b.broadcastLike(sum, x[0]));
        return Values{y, b.exp(sum), b.reduce(y, "min", {1}, false)};
      },
      {uniform({7, 33})});
}

TEST(RegionKernel, WholeTensor) {
  for (int64_t size : edgeSizes)
    check([](GraphBuilder &b, auto x) { return Values{b.sumAll(b.mul(x[0], x[0]))}; },
          {uniform({size, 3})});
}

TEST(RegionKernel, ColumnSums) {
  for (int64_t rows : {1, 3, 63, 64, 65, 200})
    for (int64_t columns : {1, 15, 16, 17, 64, 65, 130, 1003})
      check(
          [](GraphBuilder &b, auto x) {
            return Values{b.sum(x[0], {0}, false), b.sum(b.mul(x[0], x[1]), {0}, false)};
          },
          {uniform({rows, columns}, 1), uniform({rows, columns}, 2)});
}

TEST(RegionKernel, ColumnSumsWithValuesPerRowAndAnEpilogue) {
  check(
      [](GraphBuilder &b, auto x) {
        Value centred = b.sub(x[0], b.broadcastLike(x[1], x[0]));
        Value full = b.mul(centred, x[0]);
        return Values{b.add(b.sum(full, {0}, false), x[2]), full};
      },
      {uniform({70, 75}, 1), uniform({70, 1}, 2), uniform({75}, 3)});
}

TEST(RegionKernel, ChannelStatistics) {
  for (auto [n, size] : {std::pair<int64_t, int64_t>{1, 49}, {4, 49}, {3, 16}, {2, 1003}})
    check(
        [n = n, size = size](GraphBuilder &b, auto x) {
          double count = static_cast<double>(n * size);
          Value mean = b.scale(b.sum(x[0], {0, 2}, true), 1 / count);
          Value d = b.sub(x[0], b.broadcastLike(mean, x[0]));
          Value variance = b.scale(b.sum(b.mul(d, d), {0, 2}, true), 1 / count);
          Value rstd = b.rsqrt(b.shift(variance, 1e-5));
          Value scale = b.mul(rstd, b.reshape(x[1], {1, 5, 1}));
          return Values{b.mul(d, b.broadcastLike(scale, x[0])), b.reshape(mean, {5}),
                        b.reshape(variance, {5})};
        },
        {uniform({n, 5, size}, 1), uniform({5}, 2)});
}

TEST(RegionKernel, PerChannelScaleOfImages) {
  check(
      [](GraphBuilder &b, auto x) {
        Value scale = b.rsqrt(b.shift(b.mul(x[1], x[1]), 1e-3));
        return Values{b.mul(x[0], b.broadcastAlong(scale, {3, 5, 7, 7}, 1))};
      },
      {uniform({3, 5, 7, 7}, 1), uniform({5}, 2)});
}

TEST(RegionKernel, RandomNumbersAlignedAndNot) {
  for (bool batched : {false, true})
    for (Shape shape : {Shape{3, 64}, {3, 17}, {5}, {2, 3, 20}, {4, 1003}})
      check(
          [&](GraphBuilder &b, auto x) {
            Value u = b.make<graph::RandomUniformOp>(
                x[1], x[2], x[3], ArrayRef<int64_t>(shape), 41, batched);
            Value keep = b.compare(u, "ge", b.splatLike(u, 0.25));
            return Values{u, keep, b.select(keep, x[0], b.splatLike(x[0], 0))};
          },
          {uniform(shape), integers({}, {0x123456789abcdef}), integers({}, {5}),
           integers({}, {1000})},
          /*tolerance=*/0);
}

/// As the moments of a parameter without dimensions are rounded.
TEST(RegionKernel, RandomNumberWithoutDimensions) {
  check(
      [](GraphBuilder &b, auto x) {
        Value u = b.make<graph::RandomUniformOp>(x[1], x[2], x[3], ArrayRef<int64_t>(),
                                                 41, false);
        return Values{b.add(u, x[0])};
      },
      {uniform({}), integers({}, {7}), integers({}, {5}), integers({}, {0})},
      /*tolerance=*/0);
}

TEST(RegionKernel, CrossEntropyOfLabels) {
  check(
      [](GraphBuilder &b, auto x) {
        Value labels = b.broadcast(b.reshape(x[1], {6, 1}), {6, 37});
        Value isLabel =
            b.compare(b.make<graph::IotaOp>(ArrayRef<int64_t>{6, 37}, 1), "eq", labels);
        Value largest = b.broadcastLike(b.reduce(x[0], "max", {1}, true), x[0]);
        Value shifted = b.sub(x[0], largest);
        Value logSum = b.log(b.sum(b.exp(shifted), {1}, false));
        Value chosen =
            b.sum(b.select(isLabel, shifted, b.splatLike(shifted, 0)), {1}, false);
        return Values{b.sub(logSum, chosen)};
      },
      {uniform({6, 37}), randomIntegers({6}, 0, 37)});
}

TEST(RegionKernel, IotaAlongRows) {
  check(
      [](GraphBuilder &b, auto x) {
        Value row = b.make<graph::IotaOp>(ArrayRef<int64_t>{5, 3, 9}, 1);
        Value column = b.make<graph::IotaOp>(ArrayRef<int64_t>{5, 3, 9}, 2);
        return Values{b.add(b.add(row, column), x[0]), b.compare(row, "lt", column)};
      },
      {randomIntegers({5, 3, 9}, -50, 50)});
}

/// As a kernel of its own, with nothing to read.
TEST(RegionKernel, IotaAlone) {
  for (std::vector<int64_t> shape : {std::vector<int64_t>{4, 6}, {3, 40}, {2, 3, 5}, {7}})
    for (int64_t axis = 0; axis < int64_t(shape.size()); ++axis)
      check(
          [&](GraphBuilder &b, auto) {
            return Values{b.make<graph::IotaOp>(ArrayRef<int64_t>(shape), axis)};
          },
          {});
}

TEST(RegionKernel, IntegersOfAllWidths) {
  for (unsigned width : {8u, 16u, 32u, 64u})
    check(
        [](GraphBuilder &b, auto x) {
          return Values{b.add(x[0], x[1]), b.sum(b.mul(x[0], x[1]), {1}, false),
                        b.reduce(x[0], "max", {1}, false), b.compare(x[0], "lt", x[1])};
        },
        {randomIntegers({3, 37}, -60, 60, width), randomIntegers({3, 37}, -2, 9, width)});
}

TEST(RegionKernel, BooleansAreBytes) {
  check(
      [](GraphBuilder &b, auto x) {
        return Values{b.make<graph::AndOp>(x[0], b.make<graph::NotOp>(x[1])),
                      b.cast(x[0], b.getF32Type())};
      },
      {randomIntegers({77}, 0, 2, 1), randomIntegers({77}, 0, 2, 1)});
}

TEST(RegionKernel, MaximumKeepsNan) {
  HostTensor x = uniform({4, 70});
  x.reals[3] = NAN;
  x.reals[70 + 69] = NAN;
  x.reals[140] = INFINITY;
  check(
      [](GraphBuilder &b, auto x) {
        return Values{b.reduce(x[0], "max", {1}, false),
                      b.reduce(x[0], "min", {1}, false), b.sum(x[0], {1}, false)};
      },
      {x});
}

TEST(RegionKernel, BroadcastAlone) {
  check([](GraphBuilder &b, auto x) { return Values{b.broadcast(x[0], {3, 4, 21})}; },
        {uniform({4, 1})});
}

TEST(RegionKernel, UpdatesInPlace) {
  Body body = [](GraphBuilder &b, auto x) {
    Value velocity = b.add(b.scale(x[1], 0.9), x[2]);
    return Values{b.sub(x[0], b.mul(b.broadcastLike(x[3], velocity), velocity)),
                  velocity};
  };
  std::vector<HostTensor> inputs = {uniform({10001}, 1), uniform({10001}, 2),
                                    uniform({10001}, 3), uniform({}, 4)};
  RegionCase region(body, inputs);
  ASSERT_TRUE(canUpdateInPlace(region.region(), 1, 1));
  RegionKernel kernel(region);
  expectSameBits(kernel.runEverywhere(), kernel.runEverywhere(InPlace{1, 1}));
}

TEST(RegionKernel, UpdatesASoftmaxInPlace) {
  RegionCase region([](GraphBuilder &b, auto x) { return softmax(b, x[0], 1); },
                    {uniform({9, 100})});
  ASSERT_TRUE(canUpdateInPlace(region.region(), 0, 0));
  RegionKernel kernel(region);
  expectSameBits(kernel.runEverywhere(), kernel.runEverywhere(InPlace{0, 0}));
}
