// The CTC loss against recorded values of PyTorch (record_ctc.py) and central
// differences.

#include "tests/ir/GradientCheck.h"

#include "ir/graph/GraphBuilder.h"

using namespace mlir;
using namespace sluice;
using namespace sluice::graph;

namespace {

const struct {
  const char *name;
  std::vector<double> values;
} recorded[] = {
#include "tests/ir/ctc-values.inc"
};

std::vector<double> recordedAs(const std::string &name) {
  for (const auto &entry : recorded)
    if (name == entry.name)
      return entry.values;
  ADD_FAILURE() << "nothing is recorded as " << name;
  return {};
}

constexpr int64_t samples = 4, frames = 6, classes = 5, blank = 2;

std::vector<HostTensor> inputs() {
  HostTensor logits = uniform({samples, frames, classes});
  for (int64_t i = 0; i < logits.size(); ++i)
    logits.reals[i] = std::sin(1.7 * i) * 2 + std::cos(0.3 * i * i);
  return {logits, integer({samples, 3}, {0, 1, 1, 3, 4, -100, 0, -100, -100, 4, 4, 4}),
          integer({samples}, {6, 5, 6, 4}), integer({samples}, {3, 2, 1, 3})};
}

Build ctc(bool zeroInfinity, bool perLabel) {
  return [=](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
    return b.create<CtcLossOp>(b.getUnknownLoc(), x[0], x[1], x[2], x[3], blank,
                               zeroInfinity, perLabel);
  };
}

/// The inputs with logits made log probabilities.
std::vector<HostTensor> normalized() {
  std::vector<HostTensor> all = inputs();
  Build softmax = [](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
    return b.create<LogSoftmaxOp>(b.getUnknownLoc(), x[0], 2);
  };
  all[0] = run(softmax, {all[0]})[0];
  return all;
}

/// The gradient in the logits of the weighted sum of the losses.
std::vector<double> gradientInLogits(bool perLabel, double weight) {
  std::vector<HostTensor> all = normalized();
  HostTensor dy = real({samples}, std::vector<double>(samples, weight));
  HostTensor dx = gradientsOf(ctc(true, perLabel), all, {&dy})[0];
  Build softmax = [](OpBuilder &b, ArrayRef<Value> x) -> Operation * {
    return b.create<LogSoftmaxOp>(b.getUnknownLoc(), x[0], 2);
  };
  return gradientsOf(softmax, {inputs()[0]}, {&dx})[0].reals;
}

TEST(Ctc, LossesArePyTorchs) {
  expectReals(run(ctc(true, false), normalized())[0], recordedAs("each_loss"), 1e-11);
  double sum = 0;
  std::vector<HostTensor> losses = run(ctc(true, true), normalized());
  for (double loss : losses[0].reals)
    sum += loss;
  EXPECT_NEAR(sum / samples, recordedAs("mean_loss")[0], 1e-11);
}

TEST(Ctc, GradientsArePyTorchs) {
  auto expectNear = [](const std::vector<double> &actual,
                       const std::vector<double> &expected) {
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i)
      EXPECT_NEAR(actual[i], expected[i], 1e-11) << i;
  };
  expectNear(gradientInLogits(false, 1), recordedAs("each_gradient"));
  expectNear(gradientInLogits(true, 1.0 / samples), recordedAs("mean_gradient"));
}

TEST(Ctc, GradientIsThatOfDifferences) {
  checkGradient(ctc(true, false), normalized());
  checkGradient(ctc(true, true), inputs()); // also where rows are not normalised
}

TEST(Ctc, WithoutAnAlignmentIsInfinite) {
  std::vector<double> loss = run(ctc(false, false), normalized())[0].reals;
  EXPECT_TRUE(std::isinf(loss[3]));
  EXPECT_TRUE(std::isfinite(loss[0]));
}

TEST(Ctc, TargetsEndAtTheFirstLabelThatIsNone) {
  std::vector<HostTensor> cut = normalized(), longer = cut;
  cut[3].integers = {3, 2, 1, 0};
  longer[1].integers = {0, 1, 1, 3, 4, -100, 0, classes, 1, -1, 4, 4};
  longer[3].integers = {3, 3, 3, 3};
  expectReals(run(ctc(true, true), longer)[0], run(ctc(true, true), cut)[0].reals);
}

TEST(Ctc, RefusesWhatDoesNotFit) {
  std::string op =
      "%0 = \"graph.ctc_loss\"(%x, %y, %n, %n) <{blank = 5 : i64}> : "
      "(tensor<2x3x4xf32>, tensor<2x2xi64>, tensor<2xi64>, tensor<2xi64>) -> "
      "tensor<2xf32>";
  std::string arguments = "%x: tensor<2x3x4xf32>, %y: tensor<2x2xi64>, %n: tensor<2xi64>";
  EXPECT_ERROR(errorsOfOp(arguments, op), "'blank' of 'ctc_loss' is 5");
}

} // namespace
