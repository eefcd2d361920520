// Pooling: values of PyTorch 1.13.1 (record_composites.py) and gradients.

#include "tests/ir/GradientCheck.h"

using namespace mlir;
using namespace sluice::graph;

namespace {

struct Geometry {
  Shape kernel{2, 2}, strides{2, 2}, dilations{1, 1}, padsBegin{0, 0}, padsEnd{0, 0},
      output{1, 2};
};

Build maxPool(const Geometry &g) {
  return [=](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
    return b.create<MaxPoolOp>(b.getUnknownLoc(), x[0], g.kernel, g.strides, g.dilations,
                               g.padsBegin, g.padsEnd, g.output);
  };
}
Build avgPool(const Geometry &g, bool includePadding) {
  return [=](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
    return b.create<AvgPoolOp>(b.getUnknownLoc(), x[0], g.kernel, g.strides, g.dilations,
                               g.padsBegin, g.padsEnd, g.output, includePadding);
  };
}

HostTensor image() { return real({1, 1, 3, 4}, {1, 3, 2, 3, 0, -1, 2, 5, 4, 4, 1, 0}); }
HostTensor counting(Shape shape) {
  HostTensor tensor = uniform(std::move(shape));
  for (size_t i = 0; i < tensor.reals.size(); ++i)
    tensor.reals[i] = i + 1.0;
  return tensor;
}

TEST(MaxPool, IsPyTorchs) {
  Geometry g{.strides = {1, 1}, .padsBegin = {1, 1}, .padsEnd = {1, 1}, .output = {4, 5}};
  expectReals(run(maxPool(g), {image()})[0],
              {1, 3, 3, 3, 3, 1, 3, 3, 5, 5, 4, 4, 4, 5, 5, 4, 4, 4, 1, 0});
  HostTensor dy = counting({1, 1, 4, 5});
  expectReals(gradientsOf(maxPool(g), {image()}, {&dy})[0],
              {7, 20, 0, 9, 0, 0, 0, 48, 56, 31, 19, 20});
}

TEST(MaxPool, KeepsNaNAndIgnoresPadding) {
  Geometry g{.kernel = {3},
             .strides = {2},
             .dilations = {1},
             .padsBegin = {1},
             .padsEnd = {1},
             .output = {2}};
  HostTensor x = real({1, 1, 3}, {-5, -7, std::nan("")});
  expectReals(run(maxPool(g), {x})[0], {-5, std::nan("")});
}

TEST(MaxPool, DifferentiatesInOneToThreeDimensions) {
  checkGradient(maxPool({.kernel = {2},
                         .strides = {1},
                         .dilations = {2},
                         .padsBegin = {1},
                         .padsEnd = {0},
                         .output = {4}}),
                {distinct({2, 2, 5})});
  checkGradient(maxPool({}), {distinct({2, 3, 2, 4})});
  checkGradient(maxPool({.kernel = {2, 2, 1},
                         .strides = {1, 1, 2},
                         .dilations = {1, 1, 1},
                         .padsBegin = {0, 0, 0},
                         .padsEnd = {0, 0, 0},
                         .output = {1, 1, 2}}),
                {distinct({1, 2, 2, 2, 3})});
}

TEST(MaxPool, OfAnEmptyBatch) {
  EXPECT_EQ(run(maxPool({}), {uniform({0, 3, 2, 4})})[0].shape, (Shape{0, 3, 1, 2}));
}

TEST(AvgPool, IsPyTorchs) {
  Geometry g{.padsBegin = {1, 1}, .padsEnd = {1, 1}, .output = {2, 3}};
  HostTensor dy = counting({1, 1, 2, 3});
  expectReals(run(avgPool(g, false), {image()})[0], {1, 2.5, 3, 2, 1.5, 2.5});
  expectReals(gradientsOf(avgPool(g, false), {image()}, {&dy})[0],
              {1, 1, 1, 3, 2, 1.25, 1.25, 3, 2, 1.25, 1.25, 3});
  expectReals(run(avgPool(g, true), {image()})[0], {0.25, 1.25, 0.75, 1, 1.5, 1.25});
  expectReals(gradientsOf(avgPool(g, true), {image()}, {&dy})[0],
              {0.25, 0.5, 0.5, 0.75, 1, 1.25, 1.25, 1.5, 1, 1.25, 1.25, 1.5});
}

TEST(AvgPool, DifferentiatesTwice) {
  Geometry g{.padsBegin = {1, 0}, .padsEnd = {0, 0}, .output = {1, 2}};
  for (bool include : {false, true}) {
    checkGradient(avgPool(g, include), {uniform({2, 3, 2, 4})});
    Build adjoint = [=](OpBuilder &b, ArrayRef<Value> dy) -> Operation * {
      return b.create<AvgPoolGradOp>(b.getUnknownLoc(), dy[0], g.kernel, g.strides,
                                     g.dilations, g.padsBegin, g.padsEnd, g.output,
                                     include, Shape{2, 4});
    };
    checkGradient(adjoint, {uniform({2, 3, 1, 2})});
  }
}

TEST(Pool, RefusesGeometryOfAnotherRank) {
  EXPECT_ERROR(
      errorsOfOp(
          "%x: tensor<1x1x4x4xf32>",
          "%y = graph.max_pool %x {kernel = array<i64: 2>, strides = array<i64: 1>, "
          "dilations = "
          "array<i64: 1>, pads_begin = array<i64: 0>, pads_end = array<i64: 0>, output = "
          "array<i64: 3>} : (tensor<1x1x4x4xf32>) -> tensor<1x1x3xf32>"),
      "rank 4, expected 3");
}

} // namespace
