// Products read weights and kept values as the codes they are stored in.

#include "kernels/Params.h"
#include "runtime/Checkpoint.h"
#include "tests/passes/plan/StepCheck.h"
#include "tests/passes/plan/TrainedState.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

/// x [512, 64] -> gelu layer of 128 -> logits [512, 32].
const std::string layers = R"(
graph.parameter @"param/fc1.weight" : tensor<128x64xf32> "parameter"
graph.parameter @"param/fc2.weight" : tensor<32x128xf32> "parameter"
func.func @forward(%x: tensor<512x64xf32> {graph.name = "x"}) -> (tensor<512x32xf32> {graph.name = "logits"}) {
  %w1 = graph.read @"param/fc1.weight" : tensor<128x64xf32>
  %w2 = graph.read @"param/fc2.weight" : tensor<32x128xf32>
  %0 = graph.contract %x, %w1 {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<512x64xf32>, tensor<128x64xf32>) -> tensor<512x128xf32> loc("fc1")
  %1 = graph.gelu %0 : (tensor<512x128xf32>) -> tensor<512x128xf32> loc("act")
  %2 = graph.contract %1, %w2 {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<512x128xf32>, tensor<32x128xf32>) -> tensor<512x32xf32> loc("fc2")
  return %2 : tensor<512x32xf32>
})";

/// Products of a program by how many of their operands are codes.
struct Products {
  int plain = 0, coded = 0;
  int64_t bytes = 0; // of the program
};

struct Counted {
  Products step, eval;
};

Counted countProducts(const std::vector<StorageRule> &rules, const std::string &compute) {
  TrainingSpec spec = classification("adamw");
  spec.precision.rules = rules;
  spec.precision.compute = compute;
  PlanFolder folder;
  Compiled compiled = compileText(layers, optionsFor(spec, folder.file("m.plan")));
  EXPECT_TRUE(compiled.status.ok()) << compiled.status.message;
  Counted counted;
  if (!compiled.status.ok())
    return counted;
  Running running(folder.file("m.plan"), 1);
  const fbs::Plan &plan = running.session->plan().raw();
  for (const fbs::Program *program : *plan.programs()) {
    bool isStep = program->name()->str() == "step";
    if (!isStep && program->name()->str() != "eval")
      continue;
    Products &products = isStep ? counted.step : counted.eval;
    products.bytes = int64_t(program->step_bytes());
    for (const fbs::Launch *launch : *program->launches())
      for (const fbs::Stage *stage : *launch->stages()) {
        std::string name = plan.kernels()->Get(stage->kernel())->name()->str();
        if (name != "gemm_f32" && name != "gemm_packed_f32")
          continue;
        auto params = unpackParams<GemmParams>(stage->params()->data());
        bool isCoded = params.aCodes.format != 0 || params.bCodes.format != 0;
        (isCoded ? products.coded : products.plain) += 1;
      }
  }
  return counted;
}

StorageRule storedAs(const std::string &format) {
  StorageRule rule;
  rule.match = "*";
  rule.storage = {format};
  return rule;
}

class CodedProducts : public testing::TestWithParam<std::string> {};

/// Both in eval; in the step also the gradient of the second one's input.
TEST_P(CodedProducts, ReadWeightsWhereTheyLie) {
  for (const char *compute : {"fp32", "amp_bf16"}) {
    SCOPED_TRACE(compute);
    Counted wide = countProducts({}, compute);
    EXPECT_EQ(wide.eval.coded + wide.step.coded, 0);
    Counted coded = countProducts({storedAs(GetParam())}, compute);
    EXPECT_EQ(coded.eval.coded, 2);
    EXPECT_EQ(coded.eval.plain, 0);
    EXPECT_EQ(coded.step.coded, 3);
    // No decoded weight lies in the reservation.
    EXPECT_LE(coded.eval.bytes, wide.eval.bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Storage, CodedProducts,
                         testing::Values("e4m3", "e5m2", "e4m3_1x128", "e4m3_128x128",
                                         "mxfp8", "mxfp4", "nvfp4"),
                         [](const auto &info) { return info.param; });

class ResumedCodes : public testing::TestWithParam<std::string> {};

/// A checkpoint has values and scales, from which the codes come back bit for bit.
TEST_P(ResumedCodes, GoOnAsIfNothingHadHappened) {
  TrainingSpec spec = classification("adamw");
  spec.precision.rules = {storedAs(GetParam())};
  PlanFolder folder;
  Compiled compiled = compileText(layers, optionsFor(spec, folder.file("m.plan")));
  ASSERT_TRUE(compiled.status.ok()) << compiled.status.message;
  auto step = [](Running &running, int64_t index) {
    const Plan &plan = running.session->plan();
    running.step(inputsOf(plan, "step", 30 + index), index * plan.batch());
  };
  Running whole(folder.file("m.plan"), 1), resumed(folder.file("m.plan"), 2);
  step(whole, 0), step(whole, 1);
  auto path = saveCheckpoint(*whole.session, folder.file("run"), {});
  ASSERT_TRUE(path.ok()) << path.status().message;
  auto info = loadCheckpoint(*resumed.session, folder.file("run"));
  ASSERT_TRUE(info.ok()) << info.status().message;
  for (Running *running : {&whole, &resumed})
    step(*running, 2), step(*running, 3);
  EXPECT_EQ(different(whole.saved(), resumed.saved()), std::vector<std::string>());
}

INSTANTIATE_TEST_SUITE_P(Storage, ResumedCodes,
                         testing::Values("bf16", "fp16", "e4m3", "e5m2", "e4m3_1x128",
                                         "e4m3_128x128", "mxfp8", "mxfp4", "nvfp4"),
                         [](const auto &info) { return info.param; });

/// The gradient of the second weight reads what was kept of the activation.
TEST(KeptCodes, AreReadByProducts) {
  StorageRule rule;
  rule.match = "act";
  rule.saved = "mxfp8";
  Counted counted = countProducts({rule}, "fp32");
  EXPECT_EQ(counted.step.coded, 1);
  EXPECT_EQ(counted.eval.coded, 0);
}

} // namespace
} // namespace sluice
