// Cross entropy, random numbers, dropout and optimizers: values of PyTorch 1.13.1
// (record_composites.py), of the Philox paper, decompositions and gradients.

#include "ir/graph/Philox.h"
#include "tests/ir/DecompositionCheck.h"
#include "tests/ir/GradientCheck.h"

using namespace mlir;
using namespace sluice::graph;

namespace {

Build crossEntropy(bool weighted, double smoothing) {
  return [=](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
    return b.create<CrossEntropyOp>(b.getUnknownLoc(), x[0], x[1],
                                    weighted ? x[2] : Value(), -100, APFloat(smoothing));
  };
}

struct Scores {
  HostTensor logits = real({4, 3}, {1, 2, 3, 3, 2, 1, 0, 0, 5, 1, -1, 0});
  HostTensor labels = integer({4}, {0, 1, -100, 2});
  HostTensor weights = real({3}, {0.2, 0.3, 0.5});
  HostTensor one = real({}, {1});
};

TEST(CrossEntropy, IsPyTorchs) {
  Scores s;
  auto plain = run(crossEntropy(true, 0), {s.logits, s.labels, s.weights});
  EXPECT_NEAR(plain[0].reals[0], 1.60760596444438, 1e-7);
  EXPECT_NEAR(plain[1].reals[0], 1.0, 1e-7); // weights of the labels 0, 1 and 2
  auto smooth = run(crossEntropy(true, 0.1), {s.logits, s.labels, s.weights});
  EXPECT_NEAR(smooth[0].reals[0], 1.59093929777771, 1e-7);
  expectReals(gradientsOf(crossEntropy(true, 0), {s.logits, s.labels, s.weights},
                          {&s.one, nullptr})[0],
              {-0.181993885365924, 0.0489456942109595, 0.133048191154964,
               0.199572286732447, -0.226581458683561, 0.0270091719511141, 0, 0, 0,
               0.332620477887411, 0.0450152865851902, -0.377635764472601},
              1e-6);
  expectReals(gradientsOf(crossEntropy(true, 0.1), {s.logits, s.labels, s.weights},
                          {&s.one, nullptr})[0],
              {-0.167460144390319, 0.0422087404916902, 0.125251403898629,
               0.195123089918363, -0.205765697113378, 0.0106426071950154, 0, 0, 0,
               0.314866461957831, 0.0335147770323505, -0.348381238990181},
              1e-6);
}

// A8: the mean divides by the weights' sum.
TEST(CrossEntropy, CountsTheWeightsOfTheLabels) {
  HostTensor logits = real({2, 3}, {1, 2, 3, 3, 2, 1});
  auto r =
      run(crossEntropy(true, 0), {logits, integer({2}, {0, 1}), real({3}, {.2, .3, .5})});
  EXPECT_NEAR(r[0].reals[0] / r[1].reals[0], 1.8076060, 1e-7);
}

TEST(CrossEntropy, DecomposesAndDifferentiates) {
  Scores s;
  for (double smoothing : {0.0, 0.1})
    for (bool weighted : {false, true}) {
      std::vector<HostTensor> inputs{s.logits, s.labels};
      if (weighted)
        inputs.push_back(s.weights);
      checkDecomposition(crossEntropy(weighted, smoothing), inputs);
      compareWithDifferences(crossEntropy(weighted, smoothing), inputs, {&s.one, nullptr},
                             {1e-6, 1e-6, {}});
      if (weighted)
        checkGradient(crossEntropy(weighted, smoothing), inputs, {1e-6, 1e-6, {}});
    }
}

TEST(CrossEntropy, TakesNarrowLabels) {
  Scores s;
  s.labels = integer({4}, {0, 1, -100, 2}, 32);
  checkDecomposition(crossEntropy(false, 0), {s.logits, s.labels});
}

// A7: rows that are ignored contribute exactly nothing, even where their logits are not
// finite.
TEST(CrossEntropy, OfIgnoredRowsIsExactlyZero) {
  HostTensor logits = real({2, 3}, {std::nan(""), 0, 0, 1e38, -1e38, 0});
  HostTensor labels = integer({2}, {-100, -100}), one = real({}, {1});
  for (const auto &r : {run(crossEntropy(false, 0.1), {logits, labels}),
                        runDecomposed(crossEntropy(false, 0.1), {logits, labels})}) {
    EXPECT_EQ(r[0].reals[0], 0);
    EXPECT_EQ(r[1].reals[0], 0);
  }
  HostTensor dx =
      gradientsOf(crossEntropy(false, 0.1), {logits, labels}, {&one, nullptr})[0];
  EXPECT_EQ(dx.reals, std::vector<double>(6, 0));
}

TEST(CrossEntropy, RefusesALabelOutOfRange) {
  mlir::OwningOpRef<ModuleOp> module =
      moduleOf(crossEntropy(false, 0), {uniform({1, 3}), integer({1}, {3})});
  std::string message;
  ScopedDiagnosticHandler handler(&context(), [&](Diagnostic &d) { message += d.str(); });
  StateMap state;
  auto function = module->lookupSymbol<func::FuncOp>("f");
  EXPECT_TRUE(failed(interpret(function, {uniform({1, 3}), integer({1}, {3})}, state,
                               Precision::Double)));
  EXPECT_ERROR(message, "label 3 in row 0");
}

// Known answers of the reference implementation (Random123, kat_vectors).
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(
      philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
      (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

Build randomUniform(Shape shape, bool batched) {
  return [=](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
    return b.create<RandomUniformOp>(b.getUnknownLoc(), x[0], x[1], x[2], shape, 5,
                                     batched);
  };
}

TEST(RandomUniform, IsKeyedBySampleAndElement) {
  HostTensor seed = integer({}, {7}), update = integer({}, {3});
  auto all = run(randomUniform({4, 6}, true), {seed, update, integer({}, {10})})[0];
  auto later = run(randomUniform({2, 6}, true), {seed, update, integer({}, {12})})[0];
  for (int i = 0; i < 12; ++i)
    EXPECT_EQ(later.reals[i],
              all.reals[12 + i]); // the same samples in another micro-batch
  EXPECT_EQ(all.reals[7], philoxUniform({7, 3, 11, 5}, 1));
  auto unbatched =
      run(randomUniform({4, 6}, false), {seed, update, integer({}, {10})})[0];
  EXPECT_EQ(unbatched.reals[7], philoxUniform({7, 3, 0, 5}, 7));
}

TEST(RandomUniform, IsUniform) {
  auto r = run(randomUniform({100, 100}, true),
               {integer({}, {1}), integer({}, {0}), integer({}, {0})})[0];
  double mean = 0, square = 0;
  for (double x : r.reals) {
    ASSERT_TRUE(x >= 0 && x < 1);
    mean += x / 1e4;
    square += x * x / 1e4;
  }
  EXPECT_NEAR(mean, 0.5, 0.015); // five standard deviations
  EXPECT_NEAR(square, 1.0 / 3, 0.015);
}

Build dropout(double ratio, int64_t samples) {
  return [=](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
    return b.create<DropoutOp>(b.getUnknownLoc(), x[0], x[1], x[2], x[3], APFloat(ratio),
                               5, samples);
  };
}

std::vector<HostTensor> dropoutInputs() {
  return {uniform({4, 3}, 1, 2), integer({}, {7}), integer({}, {3}), integer({}, {10})};
}

TEST(Dropout, DecomposesAndDifferentiates) {
  for (double ratio : {0.0, 0.3, 0.5, 1.0})
    for (int64_t samples : {0, 2, 4}) {
      checkDecomposition(dropout(ratio, samples), dropoutInputs());
      checkGradient(dropout(ratio, samples), dropoutInputs());
    }
}

// R1: the gradient is 0 exactly where the value is, else scaled as the value is.
TEST(Dropout, GradientFollowsTheMask) {
  auto y = run(dropout(0.5, 4), dropoutInputs());
  HostTensor w = uniform({4, 3}, 1, 2, 9);
  auto dx = gradientsOf(dropout(0.5, 4), dropoutInputs(), {&w, nullptr})[0];
  for (int i = 0; i < 12; ++i)
    EXPECT_EQ(dx.reals[i], y[0].reals[i] == 0 ? 0 : 2 * w.reals[i]);
}

Build sgd(bool velocity, double dampening, bool nesterov) {
  return [=](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
    return b.create<SgdOp>(b.getUnknownLoc(), x[0], x[1], velocity ? x[2] : Value(),
                           x[velocity ? 3 : 2], x[velocity ? 4 : 3], APFloat(0.9),
                           APFloat(dampening), APFloat(0.01), nesterov, ValueRange(),
                           ArrayAttr());
  };
}

/// Three updates with gradients g, 2 g and 3 g as the recording's.
void expectSgd(double dampening, bool nesterov,
               const std::vector<std::vector<double>> &weights) {
  HostTensor w = real({3}, {0.5, -1, 2}), v = real({3}, {0, 0, 0});
  for (int64_t step = 0; step < 3; ++step) {
    double k = step + 1;
    std::vector<HostTensor> inputs{w, real({3}, {.1 * k, -.2 * k, .3 * k}), v,
                                   real({}, {0.1}), integer({}, {step})};
    checkDecomposition(sgd(true, dampening, nesterov), inputs);
    auto r = run(sgd(true, dampening, nesterov), inputs);
    w = r[0];
    v = r[1];
    expectReals(w, weights[step]);
  }
}

TEST(Sgd, IsPyTorchs) {
  expectSgd(0.2, false,
            {{0.4895, -0.979, 1.968},
             {0.4636584, -0.9273168, 1.8896256},
             {0.41603003328, -0.83206006656, 1.74557693952}});
  expectSgd(0, true,
            {{0.48005, -0.9601, 1.9392},
             {0.432632905, -0.86526581, 1.79559552},
             {0.3505675619805, -0.701135123961, 1.547685136512}});
}

TEST(Sgd, WithoutVelocityFollowsTheGradient) {
  std::vector<HostTensor> inputs{real({1}, {1}), real({1}, {0.5}), real({}, {0.1}),
                                 integer({}, {0})};
  checkDecomposition(sgd(false, 0, false), inputs);
  expectReals(run(sgd(false, 0, false), inputs)[0], {1 - 0.1 * 0.51});
}

Build adam(bool decoupled, bool epsBefore, double b1 = 0.8, double b2 = 0.9,
           double eps = 1e-4, double decay = 0.1) {
  return [=](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
    return b.create<AdamOp>(b.getUnknownLoc(), x[0], x[1], x[2], x[3], x[4], x[5], x[6],
                            Value(), APFloat(b1), APFloat(b2), APFloat(eps),
                            APFloat(decay), decoupled, epsBefore, ValueRange(),
                            ArrayAttr());
  };
}

void expectAdam(bool decoupled, const std::vector<std::vector<double>> &weights) {
  HostTensor w = real({3}, {0.5, -1, 2}), m = real({3}, {0, 0, 0}), v = m;
  for (int step = 0; step < 3; ++step) {
    double k = step + 1;
    std::vector<HostTensor> inputs{w,
                                   real({3}, {.1 * k, -.2 * k, .3 * k}),
                                   m,
                                   v,
                                   real({}, {0.01}),
                                   real({}, {1 - std::pow(0.8, k)}),
                                   real({}, {1 - std::pow(0.9, k)})};
    checkDecomposition(adam(decoupled, false), inputs);
    checkDecomposition(adam(decoupled, true), inputs);
    auto r = run(adam(decoupled, false), inputs);
    w = r[0];
    m = r[1];
    v = r[2];
    expectReals(w, weights[step]);
  }
}

TEST(Adam, IsPyTorchs) {
  expectAdam(false, {{0.490006662225183, -0.990003332222593, 1.99000199960008},
                     {0.480158588431448, -0.980154451297416, 1.98012209441937},
                     {0.47033849582868, -0.970334284718839, 1.97026621122376}});
  expectAdam(true, {{0.48950999000999, -0.989004997501249, 1.98800333222259},
                    {0.479340065915625, -0.978332565341307, 1.97633089695838},
                    {0.469210965509296, -0.967702303936772, 1.9647019141727}});
}

// S7: with a constant gradient of 1 the step stays lr, at any update whose corrections
// are right.
TEST(Adam, OfAConstantGradientStepsByTheRate) {
  double m = 1 - std::pow(0.9, 10), v = 1 - std::pow(0.999, 10), t = 11;
  std::vector<HostTensor> inputs{real({1}, {0}),
                                 real({1}, {1}),
                                 real({1}, {m}),
                                 real({1}, {v}),
                                 real({}, {1}),
                                 real({}, {1 - std::pow(0.9, t)}),
                                 real({}, {1 - std::pow(0.999, t)})};
  EXPECT_NEAR(run(adam(false, false, 0.9, 0.999, 1e-8, 0), inputs)[0].reals[0], -1, 1e-7);
  inputs[5] = real({}, {1 - 0.9}); // the count lost
  inputs[6] = real({}, {1 - 0.999});
  EXPECT_NEAR(run(adam(false, false, 0.9, 0.999, 1e-8, 0), inputs)[0].reals[0], -2.074,
              1e-3);
}

// P2: decay is applied to the f32 weight before the step.
TEST(Adam, DecaysWithoutAGradient) {
  std::vector<HostTensor> inputs{real({1}, {1}),   real({1}, {0}),   real({1}, {0}),
                                 real({1}, {0}),   real({}, {1e-3}), real({}, {0.1}),
                                 real({}, {0.001})};
  auto r =
      runDecomposed(adam(true, false, 0.9, 0.999, 1e-8, 1e-3), inputs, Precision::Single);
  EXPECT_NEAR(r[0].reals[0], 0.999999, 6e-8);
}

} // namespace
