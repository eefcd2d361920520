// Mixed precision and narrow state through plan file and runtime: against the
// interpreter, which rounds where the graph says so, and against other threads and
// fusions of itself.

#include "tests/passes/plan/StepCheck.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

struct Mode {
  const char *name, *compute, *master, *optimizerState;
  double tolerance; // sums of other orders may round to the neighbour in the format
};

void PrintTo(const Mode &mode, std::ostream *out) { *out << mode.name; }

TrainingSpec specOf(const Mode &mode) {
  TrainingSpec spec = classification("adamw");
  spec.precision.compute = mode.compute;
  spec.precision.master = mode.master;
  spec.precision.optimizerState = mode.optimizerState;
  return spec;
}

class Modes : public testing::TestWithParam<Mode> {};

TEST_P(Modes, TrainLikeTheInterpreter) {
  for (const std::string *model :
       {&models::mlp, &models::cnn, &models::embedding, &wide}) {
    SCOPED_TRACE(model->substr(0, 60));
    expectTrainsLikeInterpreter(*model, specOf(GetParam()), 3, GetParam().tolerance);
  }
}

TEST_P(Modes, Accumulate) {
  TrainingSpec spec = specOf(GetParam());
  spec.accumulate = 2;
  expectTrainsLikeInterpreter(models::mlp, spec, 4, GetParam().tolerance);
}

TEST_P(Modes, BitsDependOnNeitherThreadsNorFusion) {
  for (const std::string *model :
       {&models::mlp, &models::cnn, &models::embedding, &wide}) {
    SCOPED_TRACE(model->substr(0, 60));
    auto one = trainedBits(*model, specOf(GetParam()), true, 1);
    ASSERT_FALSE(one.empty());
    EXPECT_EQ(one, trainedBits(*model, specOf(GetParam()), false, 3));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Precision, Modes,
    testing::Values(Mode{"bf16", "amp_bf16", "split", "fp32", 2e-2},
                    Mode{"bf16Fp32Master", "amp_bf16", "fp32", "fp32", 2e-2},
                    Mode{"bf16NoMaster", "amp_bf16", "none", "fp32", 2e-2},
                    Mode{"f16", "amp_fp16", "fp32", "fp32", 5e-3},
                    Mode{"bf16Moments", "fp32", "", "bf16", 2e-2},
                    Mode{"int8Moments", "fp32", "", "int8", 3e-2},
                    Mode{"bf16Int8", "amp_bf16", "split", "int8", 3e-2},
                    Mode{"fp8Moments", "fp32", "", "fp8", 3e-2},
                    Mode{"bf16Fp8", "amp_bf16", "split", "fp8", 3e-2}),
    [](const auto &info) { return std::string(info.param.name); });

} // namespace
} // namespace sluice
