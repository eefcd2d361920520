// The CTC kernels against the sum over all alignments.

#include "kernels/reference/Ctc.h"
#include "tests/kernels/KernelCase.h"

#include <cmath>

namespace sluice::test {
namespace {

struct Input {
  CtcParams p;
  std::vector<float> logProbs;
  std::vector<int64_t> targets, inputLengths, targetLengths;
};

std::vector<float> normalized(std::mt19937 &rng, const CtcParams &p) {
  std::vector<float> x = randomFloats(rng, p.batch * p.frames * p.classes);
  for (size_t row = 0; row < x.size(); row += p.classes) {
    double sum = 0;
    for (int64_t c = 0; c < p.classes; ++c)
      sum += std::exp(2.0 * x[row + c]);
    for (int64_t c = 0; c < p.classes; ++c)
      x[row + c] = static_cast<float>(2.0 * x[row + c] - std::log(sum));
  }
  return x;
}

Input smallInput() {
  std::mt19937 rng(3);
  Input in;
  in.p = {.batch = 6, .frames = 5, .classes = 4, .labels = 3, .blank = 1};
  in.logProbs = normalized(rng, in.p);
  // A repetition, a full one, one label, none, an impossible one, a short input.
  in.targets = {0, 0, 2, 2, 3, 0, 3, -100, -100, -100, -100, -100, 2, 2, 2, 3, 2, -100};
  in.inputLengths = {5, 5, 5, 4, 4, 2};
  in.targetLengths = {3, 3, 1, 0, 3, 2};
  return in;
}

std::vector<Bytes> runCtc(const Input &in, bool isGrad) {
  size_t results = isGrad ? in.logProbs.size() : in.p.batch;
  int64_t scratch = isGrad ? ctcGradWorkspace(in.p) : ctcLossWorkspace(in.p);
  return runEverywhere(
      {isGrad ? "ctc_loss_grad_f32" : "ctc_loss_f32",
       packParams(in.p),
       ctcUnits(in.p),
       {toBytes(in.logProbs), toBytes(in.targets), toBytes(in.inputLengths),
        toBytes(in.targetLengths), poisoned(results * 4), Bytes(scratch)}});
}

TEST(Ctc, IsTheSumOverAllAlignments) {
  for (bool perLabel : {false, true}) {
    Input in = smallInput();
    in.p.zeroInfinity = 1;
    in.p.perLabel = perLabel;
    auto expected =
        reference::ctc(in.p, in.logProbs, in.targets, in.inputLengths, in.targetLengths);
    expectNear(expected.loss, poisoned(24), runCtc(in, false)[4], 1e-6);
    Bytes before = poisoned(in.logProbs.size() * 4);
    expectNear(expected.grad, before, runCtc(in, true)[4], 1e-6);
  }
}

TEST(Ctc, WithoutAnAlignmentIsInfinite) {
  Input in = smallInput();
  auto loss = fromBytes<float>(runCtc(in, false)[4]);
  EXPECT_TRUE(std::isinf(loss[4]));
  EXPECT_TRUE(std::isfinite(loss[5]));
}

// Log probabilities of long inputs are far outside the range of doubles.
TEST(Ctc, LongInputsStayFinite) {
  Input in;
  in.p = {.batch = 1, .frames = 2000, .classes = 3, .labels = 2};
  in.logProbs.assign(6000, -5.0f);
  in.targets = {1, 2};
  in.inputLengths = {2000};
  in.targetLengths = {2};
  auto loss = fromBytes<float>(runCtc(in, false)[4]);
  // Alignments: 4 borders of 5 runs where the blank between may be missing, and so on:
  // C(T + 2, 4) of them.
  double ways = 2002.0 * 2001 * 2000 * 1999 / 24;
  EXPECT_NEAR(loss[0], 10000 - std::log(ways), 1e-2);
  double sum = 0;
  for (float g : fromBytes<float>(runCtc(in, true)[4]))
    sum += g;
  EXPECT_NEAR(sum, -2000, 1e-2); // one state in each frame
}

TEST(Ctc, LabelsOutsideTheClassesEndTheTarget) {
  Input in = smallInput();
  Input cut = in;
  in.targets = {0, 0, 99, 2, 3, 0, 3, 2, 2, -100, 1, 1, 2, 2, 2, 3, 2, -1};
  in.targetLengths = {3, 3, 1, 3, 3, 1 << 20};
  cut.targetLengths = {2, 3, 1, 0, 3, 2};
  EXPECT_EQ(runCtc(in, false)[4], runCtc(cut, false)[4]);
}

} // namespace
} // namespace sluice::test
