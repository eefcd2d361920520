// A hundred updates of every optimizer against recorded values (record_optimizers.py),
// its reference and its decomposition, and ONNX's vectors for the modes that match.

#include "runtime/Schedule.h"
#include "tests/ir/DecompositionCheck.h"

using namespace mlir;
using namespace sluice;
using namespace sluice::graph;

namespace {

struct RecordedWeights {
  const char *name;
  int step;
  std::vector<double> w;
};

const RecordedWeights recorded[] = {
#include "tests/ir/optimizer-values.inc"
};

using Scalars = std::function<std::vector<HostTensor>(int64_t updatesDone)>;

/// An optimizer on a matrix (or vector) of six numbers: inputs are w, g, state, scalars;
/// results w and state.
struct Optimizer {
  std::string name;
  std::vector<Shape> state;
  Scalars scalars;
  Build build;
  Shape shape = {2, 3};
  double initialState = 0;
};

HostTensor number(double value) { return real({}, {value}); }
APFloat f(double value) { return APFloat(value); }

/// The gradient of record_optimizers.py, which counts elements in a [2, 3] matrix.
HostTensor gradientAt(const HostTensor &w, int64_t updatesDone) {
  HostTensor g = w;
  bool isTransposed = w.shape == Shape{3, 2};
  for (int64_t i = 0; i < 6; ++i) {
    double index = isTransposed ? (i % 2) * 3 + i / 2 : i;
    g.reals[i] = (0.5 + 0.25 * index) * (w.reals[i] - (0.3 * index - 1)) +
                 0.1 * std::cos((updatesDone + 1.0) * (index + 1));
  }
  return g;
}

HostTensor startOf(const Optimizer &optimizer) {
  HostTensor w = uniform(optimizer.shape);
  bool isTransposed = optimizer.shape == Shape{3, 2};
  for (int64_t i = 0; i < 6; ++i)
    w.reals[i] = 0.2 * ((isTransposed ? (i % 2) * 3 + i / 2 : i) + 1) - 0.7;
  return w;
}

using Step = std::function<std::vector<HostTensor>(const Build &,
                                                   const std::vector<HostTensor> &)>;

/// Weights after 1, 10 and 100 updates against the recorded ones.
void expectRecorded(const Optimizer &optimizer, const Step &step, double tolerance) {
  HostTensor w = startOf(optimizer);
  std::vector<HostTensor> state;
  for (const Shape &shape : optimizer.state) {
    state.push_back(uniform(shape));
    state.back().reals.assign(state.back().size(), optimizer.initialState);
  }
  int compared = 0;
  for (int64_t done = 0; done < 100; ++done) {
    std::vector<HostTensor> inputs{w, gradientAt(w, done)};
    inputs.insert(inputs.end(), state.begin(), state.end());
    for (HostTensor &scalar : optimizer.scalars(done))
      inputs.push_back(std::move(scalar));
    std::vector<HostTensor> results = step(optimizer.build, inputs);
    ASSERT_EQ(results.size(), 1 + state.size());
    w = results[0];
    state.assign(results.begin() + 1, results.end());
    for (const RecordedWeights &values : recorded)
      if (values.name == optimizer.name && values.step == done + 1) {
        SCOPED_TRACE(optimizer.name + " " + std::to_string(done + 1));
        expectReals(w, values.w, tolerance);
        ++compared;
      }
  }
  EXPECT_EQ(compared, 3) << optimizer.name;
}

void expectRecorded(const Optimizer &optimizer) {
  expectRecorded(
      optimizer, [](const Build &b, const auto &x) { return run(b, x); }, 1e-11);
  // Constants are f32: half an ulp each, over a hundred updates.
  expectRecorded(
      optimizer, [](const Build &b, const auto &x) { return runDecomposed(b, x); }, 2e-6);
  expectRecorded(
      optimizer,
      [](const Build &b, const auto &x) {
        return runDecomposed(b, x, Precision::Single);
      },
      2e-4);
}

Scalars rateAndUpdate(double lr) {
  return [=](int64_t done) {
    return std::vector<HostTensor>{number(lr), integer({}, {done})};
  };
}
Scalars rateAndCorrections(double lr = 0.01) {
  return [=](int64_t done) {
    return std::vector<HostTensor>{number(lr), number(biasCorrection(0.8, done)),
                                   number(biasCorrection(0.9, done))};
  };
}
const std::vector<Shape> one = {{2, 3}}, two = {{2, 3}, {2, 3}},
                         three = {{2, 3}, {2, 3}, {2, 3}};

TEST(Optimizers, SgdIsPyTorchs) {
  for (bool nesterov : {false, true})
    expectRecorded({nesterov ? "nesterov" : "sgd", one, rateAndUpdate(0.02),
                    [=](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
                      return b.create<SgdOp>(b.getUnknownLoc(), x[0], x[1], x[2], x[3],
                                             x[4], f(0.9), f(nesterov ? 0 : 0.2), f(0.1),
                                             nesterov, ValueRange(), ArrayAttr());
                    }});
}

TEST(Optimizers, AdamsArePyTorchs) {
  for (std::string name : {"adam", "adamw", "amsgrad"}) {
    bool largest = name == "amsgrad", decoupled = name == "adamw";
    expectRecorded({name, largest ? three : two, rateAndCorrections(),
                    [=](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
                      ArrayRef<Value> s = x.take_back(3);
                      return b.create<AdamOp>(b.getUnknownLoc(), x[0], x[1], x[2], x[3],
                                              s[0], s[1], s[2], largest ? x[4] : Value(),
                                              f(0.8), f(0.9), f(1e-4), f(0.1), decoupled,
                                              false, ValueRange(), ArrayAttr());
                    }});
  }
}

TEST(Optimizers, NadamIsPyTorchs) {
  auto scalars = [](int64_t done) {
    NadamWeights weights = nadamWeights(0.8, 0.01, done, nadamProduct(0.8, 0.01, done));
    return std::vector<HostTensor>{number(0.01), number(biasCorrection(0.9, done)),
                                   number(weights.gradient), number(weights.moment)};
  };
  expectRecorded(
      {"nadam", two, scalars, [](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
         return b.create<NadamOp>(b.getUnknownLoc(), x[0], x[1], x[2], x[3], x[4], x[5],
                                  x[6], x[7], f(0.8), f(0.9), f(1e-4), f(0.1), false,
                                  ValueRange(), ArrayAttr());
       }});
}

TEST(Optimizers, RadamIsPyTorchs) {
  EXPECT_EQ(radamRectification(0.9, 4), 0);
  EXPECT_GT(radamRectification(0.9, 9), 0);
  auto scalars = [](int64_t done) {
    std::vector<HostTensor> result = rateAndCorrections()(done);
    result.push_back(number(radamRectification(0.9, done)));
    return result;
  };
  expectRecorded(
      {"radam", two, scalars, [](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
         return b.create<RadamOp>(b.getUnknownLoc(), x[0], x[1], x[2], x[3], x[4], x[5],
                                  x[6], x[7], f(0.8), f(0.9), f(1e-4), f(0.1), false,
                                  ValueRange(), ArrayAttr());
       }});
}

TEST(Optimizers, DecoupledDecayActsOnTheWeight) {
  std::vector<HostTensor> inputs{number(2),   number(0),   number(0),   number(0),
                                 number(0.1), number(0.2), number(0.1), number(0.5)};
  for (bool isNadam : {true, false}) {
    Build build = [=](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
      if (isNadam)
        return b.create<NadamOp>(b.getUnknownLoc(), x[0], x[1], x[2], x[3], x[4], x[5],
                                 x[6], x[7], f(0.8), f(0.9), f(1e-4), f(0.25), true,
                                 ValueRange(), ArrayAttr());
      return b.create<RadamOp>(b.getUnknownLoc(), x[0], x[1], x[2], x[3], x[4], x[5],
                               x[6], x[7], f(0.8), f(0.9), f(1e-4), f(0.25), true,
                               ValueRange(), ArrayAttr());
    };
    EXPECT_NEAR(run(build, inputs)[0].reals[0], 2 * (1 - 0.1 * 0.25), 1e-12);
    checkDecomposition(build, inputs);
  }
}

TEST(Optimizers, LambIsItsPapers) {
  Build build = [](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
    return b.create<LambOp>(b.getUnknownLoc(), x[0], x[1], x[2], x[3], x[4], x[5], x[6],
                            f(0.8), f(0.9), f(1e-4), f(0.1), ValueRange(), ArrayAttr());
  };
  expectRecorded({"lamb", two, rateAndCorrections(), build});
  // A tensor of zeros has no size to go by: the ratio is 1.
  std::vector<HostTensor> inputs{number(0),   number(1),   number(0),  number(0),
                                 number(0.1), number(0.2), number(0.1)};
  EXPECT_NEAR(runDecomposed(build, inputs)[0].reals[0], -0.1, 1e-4);
  checkDecomposition(build, inputs);
}

TEST(Optimizers, LionIsItsPapers) {
  expectRecorded(
      {"lion", one, [](int64_t) { return std::vector<HostTensor>{number(0.01)}; },
       [](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
         return b.create<LionOp>(b.getUnknownLoc(), x[0], x[1], x[2], x[3], f(0.8),
                                 f(0.9), f(0.1), ValueRange(), ArrayAttr());
       }});
}

Build adagrad(double decay, double eps, double weightDecay) {
  return [=](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
    return b.create<AdagradOp>(b.getUnknownLoc(), x[0], x[1], x[2], x[3], x[4], f(decay),
                               f(eps), f(weightDecay), ValueRange(), ArrayAttr());
  };
}

TEST(Optimizers, AdagradIsPyTorchs) {
  Optimizer optimizer{"adagrad", one, rateAndUpdate(0.1), adagrad(0.01, 1e-4, 0.1)};
  optimizer.initialState = 0.5;
  expectRecorded(optimizer);
}

TEST(Optimizers, RmspropIsPyTorchs) {
  for (bool full : {false, true})
    expectRecorded({full ? "rmsprop_full" : "rmsprop", full ? three : one,
                    [](int64_t) { return std::vector<HostTensor>{number(0.01)}; },
                    [=](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
                      ArrayRef<Value> state = x.drop_front(3).drop_back();
                      return b.create<RmspropOp>(b.getUnknownLoc(), x[0], x[1], x[2],
                                                 x.back(), ValueRange(state), f(0.9),
                                                 f(1e-4), f(full ? 0.8 : 0), f(0.1), full,
                                                 ValueRange(), ArrayAttr());
                    }});
}

TEST(Optimizers, AdafactorIsPyTorchs) {
  Build build = [](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
    ArrayRef<Value> state = x.drop_front(2).drop_back(2), scalars = x.take_back(2);
    return b.create<AdafactorOp>(b.getUnknownLoc(), x[0], x[1], scalars[0], scalars[1],
                                 ValueRange(state), f(-0.7), f(1e-3), f(1e-2), f(1),
                                 f(0.1), ValueRange(), ArrayAttr());
  };
  expectRecorded({"adafactor", {{2, 1}, {1, 3}}, rateAndUpdate(0.05), build});
  expectRecorded({"adafactor_vector", {{6}}, rateAndUpdate(0.05), build, {6}});
  // A stack of matrices: each has rows and columns of its own.
  checkDecomposition(build, {uniform({2, 4, 3}), uniform({2, 4, 3}, -1, 1, 2),
                             uniform({2, 4, 1}, 0, 1, 3), uniform({2, 1, 3}, 0, 1, 4),
                             number(0.05), integer({}, {7})});
}

TEST(Optimizers, MuonIsItsPapers) {
  for (bool tall : {false, true}) {
    Shape shape = tall ? Shape{3, 2} : Shape{2, 3};
    Build build = [=](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
      return b.create<MuonOp>(b.getUnknownLoc(), x[0], x[1], x[2], x[3], f(0.9), f(1e-7),
                              f(0.1), 5, !tall, tall, ValueRange(), ArrayAttr());
    };
    expectRecorded({tall ? "muon_tall" : "muon",
                    {shape},
                    [](int64_t) { return std::vector<HostTensor>{number(0.01)}; },
                    build,
                    shape});
    // The kernels of a convolution are a matrix with a row per output channel.
    Shape kernels = tall ? Shape{12, 2, 2, 2} : Shape{3, 2, 2, 2};
    checkDecomposition(build, {uniform(kernels), uniform(kernels, -1, 1, 2),
                               uniform(kernels, -1, 1, 3), number(0.1)});
  }
}

TEST(Optimizers, ScalarsStandInPlaceOfAttributes) {
  auto adam = [](double beta1, double beta2, double eps, double decay, bool scalars) {
    return [=](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
      ArrayAttr names = b.getStrArrayAttr(
          {"beta1", "beta1_rest", "beta2", "beta2_rest", "epsilon", "weight_decay"});
      return b.create<AdamOp>(b.getUnknownLoc(), x[0], x[1], x[2], x[3], x[4], x[5], x[6],
                              Value(), f(beta1), f(beta2), f(eps), f(decay), true, false,
                              scalars ? ValueRange(x.drop_front(7)) : ValueRange(),
                              scalars ? names : ArrayAttr());
    };
  };
  std::vector<HostTensor> inputs{uniform({2, 3}),
                                 uniform({2, 3}, -1, 1, 2),
                                 uniform({2, 3}, -1, 1, 3),
                                 uniform({2, 3}, 0, 1, 4),
                                 number(0.1),
                                 number(0.2),
                                 number(0.1)};
  std::vector<HostTensor> expected = run(adam(0.8, 0.9, 1e-4, 0.1, false), inputs);
  for (double scalar : {0.8, 1 - 0.8, 0.9, 1 - 0.9, 1e-4, 0.1})
    inputs.push_back(number(scalar));
  Build changed = adam(0.5, 0.5, 1, 0, true);
  std::vector<HostTensor> actual = run(changed, inputs);
  for (size_t i = 0; i < expected.size(); ++i)
    expectReals(actual[i], expected[i].reals);
  checkDecomposition(changed, inputs);
}

TEST(Optimizers, RefuseStateThatDoesNotFit) {
  std::string messages = errorsOfOp(
      "%w: tensor<2xf32>, %lr: tensor<f32>",
      "%0:2 = \"graph.rmsprop\"(%w, %w, %w, %lr) <{alpha = 0.9 : f64, centered, epsilon "
      "= 1.0e-8 : f64, momentum = 0.0 : f64, operandSegmentSizes = array<i32: 1, 1, 1, "
      "1, 0, "
      "0>, weight_decay = 0.0 : f64}> : "
      "(tensor<2xf32>, "
      "tensor<2xf32>, tensor<2xf32>, tensor<f32>) -> (tensor<2xf32>, tensor<2xf32>)");
  EXPECT_ERROR(messages, "'rmsprop' has 0 tensors of state, expected 1");
  messages = errorsOfOp(
      "%w: tensor<2xf32>, %lr: tensor<f32>",
      "%0:2 = \"graph.muon\"(%w, %w, %w, %lr) <{epsilon = 1.0e-7 : f64, momentum = 0.9 : "
      "f64, ns_steps = 5 : i64, weight_decay = 0.0 : f64}> : (tensor<2xf32>, "
      "tensor<2xf32>, tensor<2xf32>, tensor<f32>) -> (tensor<2xf32>, tensor<2xf32>)");
  EXPECT_ERROR(messages, "expected rank 2 or above");
}

// ONNX 1.12: test_adam and test_adam_multiple. T is 0, where ONNX corrects nothing.
TEST(OnnxTraining, AdamIsTheOneBeforeCorrection) {
  auto build = [](double b1, double b2, double eps) -> Build {
    return [=](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
      return b.create<AdamOp>(b.getUnknownLoc(), x[0], x[1], x[2], x[3], x[4], x[5], x[6],
                              Value(), f(b1), f(b2), f(eps), f(0.001), false, true,
                              ValueRange(), ArrayAttr());
    };
  };
  auto expect = [&](const Build &adam, HostTensor w, HostTensor g, HostTensor m,
                    HostTensor v, std::vector<std::vector<double>> expected) {
    std::vector<HostTensor> inputs{w, g, m, v, number(0.1), number(1), number(1)};
    checkDecomposition(adam, inputs);
    auto results = run(adam, inputs);
    for (size_t i = 0; i < 3; ++i)
      expectReals(results[i], expected[i], 1e-6);
  };
  expect(build(0.95, 0.1, 1e-7), real({2}, {1.2, 2.8}), real({2}, {-0.94, -2.5}),
         real({2}, {1.7, 3.6}), real({2}, {0.1, 0.1}),
         {{1.025036334991455, 2.6610326766967773},
          {1.568060040473938, 3.295139789581299},
          {0.8032107949256897, 5.622406959533691}});
  Build multiple = build(0.95, 0.85, 1e-2); // the test's own default of epsilon
  expect(multiple, real({1}, {1}), real({1}, {-1}), real({1}, {2}), real({1}, {0.5}),
         {{0.7591362595558167}, {1.8500499725341797}, {0.5747001767158508}});
  expect(multiple, real({2}, {1, 2}), real({2}, {-1, -3}), real({2}, {4, 1}),
         real({2}, {1, 10}),
         {{0.628652811050415, 1.9745852947235107},
          {3.7500500679016113, 0.8000999689102173},
          {0.9997001886367798, 9.848200798034668}});
}

// test_adagrad and test_adagrad_multiple.
TEST(OnnxTraining, AdagradIsOurs) {
  auto expect = [](HostTensor w, HostTensor g, HostTensor s,
                   std::vector<std::vector<double>> expected) {
    std::vector<HostTensor> inputs{w, g, s, number(0.1), integer({}, {0})};
    checkDecomposition(adagrad(0.1, 1e-5, 0.001), inputs);
    auto results = run(adagrad(0.1, 1e-5, 0.001), inputs);
    expectReals(results[0], expected[0], 1e-6);
    expectReals(results[1], expected[1], 1e-6);
  };
  expect(real({1}, {1}), real({1}, {-1}), real({1}, {2}),
         {{1.0576962232589722}, {2.9980010986328125}});
  expect(real({2}, {1, 2}), real({2}, {-1, -3}), real({2}, {4, 1}),
         {{1.0446853637695312, 2.0948617458343506},
          {4.9980010986328125, 9.988003730773926}});
}

// test_momentum, test_momentum_multiple and test_nesterov_momentum. ONNX's beta, the
// share of the gradient after the first update, is 1 - dampening.
TEST(OnnxTraining, MomentumIsSgds) {
  auto expect = [](double dampening, double decay, bool nesterov, HostTensor w,
                   HostTensor g, HostTensor v,
                   std::vector<std::vector<double>> expected) {
    Build build = [=](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
      return b.create<SgdOp>(b.getUnknownLoc(), x[0], x[1], x[2], x[3], x[4], f(0.95),
                             f(dampening), f(decay), nesterov, ValueRange(), ArrayAttr());
    };
    std::vector<HostTensor> inputs{w, g, v, number(0.1), integer({}, {0})};
    checkDecomposition(build, inputs);
    auto results = run(build, inputs);
    expectReals(results[0], expected[0], 1e-6);
    expectReals(results[1], expected[1], 1e-6);
  };
  HostTensor w = real({2}, {1.2, 2.8}), g = real({2}, {-0.94, -2.5}),
             v = real({2}, {1.7, 3.6});
  expect(0.9, 0.001, false, w, g, v,
         {{1.1323800086975098, 2.7077200412750244},
          {0.6762000322341919, 0.922799825668335}});
  expect(0, 0.01, true, w, g, v,
         {{1.2275350093841553, 2.9571399688720703},
          {0.687000036239624, 0.9479999542236328}});
  expect(0.15, 0.001, false, real({1}, {1}), real({1}, {-1}), real({1}, {2}),
         {{0.9099000096321106}, {0.9009999632835388}});
  expect(0.15, 0.001, false, real({2}, {1, 2}), real({2}, {-1, -3}), real({2}, {4, 1}),
         {{0.7199000120162964, 2.2047998905181885},
          {2.800999879837036, -2.047999858856201}});
}

} // namespace
