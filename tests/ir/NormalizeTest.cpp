// Softmax and the normalisations: values of PyTorch 1.13.1 (record_composites.py),
// decompositions, gradients.

#include "tests/ir/DecompositionCheck.h"
#include "tests/ir/GradientCheck.h"

#include <limits>

using namespace mlir;
using namespace sluice::graph;

namespace {

/// Constants inside a gradient are f32.
const GradientCheckOptions loose = {1e-6, 1e-5, {}};

const double infinity = std::numeric_limits<double>::infinity();

Build softmax(int64_t axis) {
  return [=](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
    return b.create<SoftmaxOp>(b.getUnknownLoc(), x[0], axis);
  };
}
Build logSoftmax(int64_t axis) {
  return [=](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
    return b.create<LogSoftmaxOp>(b.getUnknownLoc(), x[0], axis);
  };
}
Build layerNorm(int64_t axis, bool bias = true) {
  return [=](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
    return b.create<LayerNormOp>(b.getUnknownLoc(), x[0], x[1], bias ? x[2] : Value(),
                                 axis, APFloat(1e-5));
  };
}
Build rmsNorm(int64_t axis) {
  return [=](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
    return b.create<RmsNormOp>(b.getUnknownLoc(), x[0], x[1], axis, APFloat(1e-5));
  };
}
Build batchNorm() {
  return [](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
    return b.create<BatchNormOp>(b.getUnknownLoc(), x[0], x[1], x[2], x[3], x[4],
                                 APFloat(1e-5));
  };
}
Build batchNormTrain() {
  return [](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
    return b.create<BatchNormTrainOp>(b.getUnknownLoc(), x[0], x[1], x[2], APFloat(1e-5),
                                      APFloat(0.9), FlatSymbolRefAttr(),
                                      FlatSymbolRefAttr());
  };
}

// I10: the values with opset 13's axis, and with the older one through a reshape.
TEST(Softmax, OfTheLastAxis) {
  HostTensor x = uniform({2, 3, 4});
  for (int i = 0; i < 24; ++i)
    x.reals[i] = i / 10.0;
  EXPECT_NEAR(run(softmax(2), {x})[0].reals[0], 0.2138382, 1e-7);
  x.shape = {2, 12};
  EXPECT_NEAR(run(softmax(1), {x})[0].reals[0], 0.0453300, 1e-7);
}

// P6: a row that is masked throughout gives 0 and no gradient, not NaN.
TEST(Softmax, OfARowMaskedThroughoutIsZero) {
  HostTensor x = real({2, 2}, {0, 1, -infinity, -infinity});
  for (const auto &results : {run(softmax(1), {x}), runDecomposed(softmax(1), {x})})
    expectReals(results[0], {1 / (1 + std::exp(1.0)), 1 / (1 + std::exp(-1.0)), 0, 0});
  HostTensor dy = real({2, 2}, {1, 2, 3, 4});
  HostTensor dx = gradientsOf(softmax(1), {x}, {&dy})[0];
  EXPECT_EQ(dx.reals[2], 0);
  EXPECT_EQ(dx.reals[3], 0);
}

TEST(Softmax, IsStableForLargeValues) {
  HostTensor x = real({1, 2}, {1e30, 1e30});
  expectReals(runDecomposed(softmax(1), {x})[0], {0.5, 0.5});
}

TEST(Softmax, KeepsNaN) {
  HostTensor x = real({1, 2}, {std::nan(""), 0});
  EXPECT_TRUE(std::isnan(run(softmax(1), {x})[0].reals[1]));
  EXPECT_TRUE(std::isnan(runDecomposed(softmax(1), {x})[0].reals[1]));
}

TEST(Softmax, DecomposesAndDifferentiatesOverAnyAxis) {
  for (int64_t axis : {0, 1, 2}) {
    HostTensor x = uniform({2, 3, 4}, -3, 3);
    checkDecomposition(softmax(axis), {x});
    checkGradient(softmax(axis), {x});
    checkDecomposition(logSoftmax(axis), {x});
    checkGradient(logSoftmax(axis), {x});
  }
}

TEST(Softmax, OfShapesWithSizesZeroAndOne) {
  for (const Shape &shape : {Shape{0, 3}, Shape{3, 0}, Shape{2, 1}}) {
    HostTensor x = uniform(shape);
    checkDecomposition(softmax(1), {x});
    checkGradient(softmax(1), {x});
  }
}

TEST(Softmax, RefusesAnAxisThatIsNone) {
  EXPECT_ERROR(errorsOfOp("%x: tensor<2x3xf32>",
                          "%y = graph.softmax %x {axis = 2 : i64} : "
                          "(tensor<2x3xf32>) -> tensor<2x3xf32>"),
               "axis");
}

struct LayerNormCase {
  HostTensor x = real({2, 6}, {0.25, 1.25, 2.25, 3.25, 4.25, 5.25, -2.75, -3.25, -3.75,
                               -4.25, -4.75, -5.25});
  HostTensor scale = real({6}, {1, 2, -1, 0.5, 3, 1.5});
  HostTensor bias = real({6}, {0, 1, 0.5, -1, 2, 0.25});
  HostTensor dy = real({2, 6}, {1, -1, 2, 0.5, 0, 3, 0, 1, -2, 1, 1, -0.5});
};

TEST(LayerNorm, IsPyTorchs) {
  LayerNormCase c;
  expectReals(run(layerNorm(1), {c.x, c.scale, c.bias})[0],
              {-1.46384759997192, -0.756617119966307, 0.792769519994384,
               -0.853615240002808, 4.63492567994946, 2.44577139995788, 1.46384007169672,
               2.75660808603607, 0.207231985660655, -1.14638400716967, -0.634912129054102,
               -1.94576010754508},
              1e-12);
  HostTensor dx =
      gradientsOf(layerNorm(1), {c.x, c.scale, c.bias}, {&c.dy, nullptr, nullptr})[0];
  expectReals(dx,
              {1.49172671893173, -0.695678360610449, -1.12646632018632, -0.23979143978747,
               -0.816964159360538, 1.38717356101305, -1.50566149264219, 0.911764793318625,
               0.987046964564679, -0.694278950225334, 2.30868336441417,
               -2.00755467942995},
              1e-6);
}

TEST(LayerNorm, DecomposesAndDifferentiates) {
  for (int64_t axis : {1, 2}) {
    Shape inner = axis == 1 ? Shape{3, 4} : Shape{4};
    std::vector<HostTensor> inputs{uniform({2, 3, 4}), uniform(inner, -2, 2, 2),
                                   uniform(inner, -1, 1, 3)};
    checkDecomposition(layerNorm(axis), inputs);
    checkGradient(layerNorm(axis), inputs, loose);
    checkGradient(layerNorm(axis, false), {inputs[0], inputs[1]}, loose);
  }
}

TEST(LayerNorm, OfOneElementAndOfNone) {
  for (int64_t size : {0, 1}) {
    std::vector<HostTensor> inputs{uniform({2, size}), uniform({size}), uniform({size})};
    checkDecomposition(layerNorm(1), inputs, 1e-4);
  }
}

TEST(LayerNorm, RefusesAScaleOfAnotherShape) {
  EXPECT_ERROR(errorsOfOp("%x: tensor<2x3xf32>, %s: tensor<2xf32>",
                          "%y, %m, %r = graph.layer_norm %x, %s {axis = 1 : i64, epsilon "
                          "= 1.0e-5 : f64} : "
                          "(tensor<2x3xf32>, tensor<2xf32>) -> (tensor<2x3xf32>, "
                          "tensor<2x1xf32>, tensor<2x1xf32>)"),
               "scale or bias");
}

TEST(RmsNorm, DividesByTheRootOfTheMeanSquare) {
  HostTensor x = real({1, 2}, {3, 4}), scale = real({2}, {1, 2});
  double rstd = 1 / std::sqrt(12.5 + 1e-5);
  expectReals(run(rmsNorm(1), {x, scale})[0], {3 * rstd, 8 * rstd});
  expectReals(run(rmsNorm(1), {x, scale})[1], {rstd});
}

TEST(RmsNorm, DecomposesAndDifferentiates) {
  std::vector<HostTensor> inputs{uniform({2, 3, 4}), uniform({4}, -2, 2, 2)};
  checkDecomposition(rmsNorm(2), inputs);
  checkGradient(rmsNorm(2), inputs, loose);
}

std::vector<HostTensor> channelInputs() {
  return {uniform({2, 3, 2}), uniform({3}, 0.5, 2, 2), uniform({3}, -1, 1, 3)};
}

TEST(BatchNorm, DecomposesAndDifferentiates) {
  std::vector<HostTensor> inputs = channelInputs();
  inputs.push_back(uniform({3}, -1, 1, 4));
  inputs.push_back(uniform({3}, 0.5, 2, 5));
  checkDecomposition(batchNorm(), inputs);
  checkGradient(batchNorm(), inputs, loose);
}

TEST(BatchNormTrain, IsPyTorchs) {
  HostTensor x = uniform({2, 3, 2}), dy = x;
  for (int i = 0; i < 12; ++i) {
    x.reals[i] = i * i / 10.0;
    dy.reals[i] = i / 7.0;
  }
  HostTensor scale = real({3}, {1, 2, 0.5}), bias = real({3}, {0, -1, 1});
  auto results = run(batchNormTrain(), {x, scale, bias});
  expectReals(results[0],
              {-0.99999891833599, -0.953487340738967, -3.11375907496779,
               -2.81604652919768, 0.458652689680472, 0.557079473374931, 0.67441787515683,
               1.27906838391813, 0.458791474273549, 1.47101412989193, 1.37730267082876,
               1.60696516611583},
              1e-12);
  // PyTorch's running mean after one step from 0 with momentum 0.1.
  expectReals(results[1], {2.15, 3.95, 6.55});
  HostTensor dx =
      gradientsOf(batchNormTrain(), {x, scale, bias}, {&dy, nullptr, nullptr})[0];
  expectReals(dx,
              {-0.0324503707572895, 0.0246874137129107, -0.0253884088310125,
               0.021316806286933, -0.00334667310691526, 0.00294301254856774,
               0.0311565445832264, -0.0233935875388475, 0.0247098084069991,
               -0.0206382058629198, 0.00327939634719067, -0.00287573578884314},
              1e-6);
}

TEST(BatchNormTrain, DecomposesAndDifferentiates) {
  checkDecomposition(batchNormTrain(), channelInputs());
  checkGradient(batchNormTrain(), channelInputs(), loose);
  checkDecomposition(batchNormTrain(), {uniform({0, 3}), uniform({3}), uniform({3})});
}

// Padding changes nothing: neither the statistics nor any gradient.
TEST(BatchNormTrain, LeavesPaddingOut) {
  Build masked = [](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
    return b.create<BatchNormTrainOp>(b.getUnknownLoc(), x[0], x[1], x[2], x[3],
                                      APFloat(1e-5), APFloat(0.9), FlatSymbolRefAttr(),
                                      FlatSymbolRefAttr());
  };
  std::vector<HostTensor> inputs = channelInputs();
  inputs[0] = uniform({4, 3, 2});
  std::vector<HostTensor> whole = inputs;
  whole[0].shape = {2, 3, 2};
  whole[0].reals.resize(12);
  inputs.push_back(integer({}, {2}));
  checkDecomposition(masked, inputs);
  checkGradient(masked, inputs, loose);
  auto results = run(masked, inputs), expected = run(batchNormTrain(), whole);
  expectReals(results[1], expected[1].reals);
  expectReals(results[2], expected[2].reals);
  expected[0].reals.resize(24, 0);
  expectReals(results[0], expected[0].reals);
  inputs[3] = integer({}, {0});
  checkDecomposition(masked, inputs);
}

TEST(BatchNorm, RefusesOtherNumbersOfChannels) {
  EXPECT_ERROR(
      errorsOfOp(
          "%x: tensor<2x3xf32>, %s: tensor<2xf32>",
          "%y, %m, %v = graph.batch_norm_train %x, %s, %s {epsilon = 1.0e-5 : f64} : "
          "(tensor<2x3xf32>, tensor<2xf32>, tensor<2xf32>) -> "
          "(tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>)"),
      "3 channels");
}

} // namespace
