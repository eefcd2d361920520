// Whole training steps: the plan in the runtime against the same graph in the
// interpreter, in double precision.

#include "tests/passes/plan/StepCheck.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(EndToEnd, MlpWithMomentum) {
  expectTrainsLikeInterpreter(models::mlp, classification(), 5);
}

TEST(EndToEnd, MlpWithAdamW) {
  expectTrainsLikeInterpreter(models::mlp, classification("adamw"), 5);
}

TEST(EndToEnd, CnnWithBatchNormAndDropout) {
  expectTrainsLikeInterpreter(models::cnn, classification(), 4, 1e-4);
}

TEST(EndToEnd, Embedding) {
  expectTrainsLikeInterpreter(models::embedding, classification(), 4);
}

TEST(EndToEnd, ChainedProducts) {
  expectTrainsLikeInterpreter(wide, classification(), 3, 1e-4);
}

TEST(EndToEnd, ClipsTheGlobalNorm) {
  TrainingSpec spec = classification();
  spec.clip.kind = "global_norm";
  spec.clip.max = 0.1;
  expectTrainsLikeInterpreter(models::mlp, spec, 3);
}

TEST(EndToEnd, AccumulatesMicroBatches) {
  TrainingSpec spec = classification("adamw");
  spec.accumulate = 2;
  expectTrainsLikeInterpreter(models::mlp, spec, 4);
}

/// Case M6: reservations and buffers of no bytes.
TEST(EndToEnd, RunsWithoutAByte) {
  PlanFolder folder;
  CompileOptions options = optionsFor({}, folder.file("m.plan"));
  options.spec.entries = {"infer"};
  options.spec.threads = 2;
  Compiled compiled = compileText(R"(
func.func @forward(%x: tensor<2x0x8xf32> {graph.name = "x"}) -> (tensor<2x0x8xf32> {graph.name = "y"}) {
  %0 = graph.relu %x : (tensor<2x0x8xf32>) -> tensor<2x0x8xf32>
  return %0 : tensor<2x0x8xf32>
})",
                                  options);
  ASSERT_TRUE(compiled.status.ok()) << compiled.status.message;
  EXPECT_EQ(compiled.report.arenaBytes, 0);
  Running running(folder.file("m.plan"), 2);
  ASSERT_TRUE(running.session);
  float nothing = 0;
  Batch batch;
  batch.data = {&nothing};
  batch.count = 2;
  Status status = running.session->infer(batch);
  ASSERT_TRUE(status.ok()) << status.message;
  auto y = running.session->output("y");
  ASSERT_TRUE(y.ok()) << y.status().message;
  EXPECT_EQ(y->bytes, 0u);
}

class Bits : public testing::TestWithParam<const std::string *> {};

TEST_P(Bits, DoNotDependOnThreads) {
  auto one = trainedBits(*GetParam(), classification("adamw"), true, 1);
  ASSERT_FALSE(one.empty());
  EXPECT_EQ(one, trainedBits(*GetParam(), classification("adamw"), true, 2));
  EXPECT_EQ(one, trainedBits(*GetParam(), classification("adamw"), true, 3));
}

TEST_P(Bits, DoNotDependOnFusion) {
  auto fused = trainedBits(*GetParam(), classification("adamw"), true, 2);
  ASSERT_FALSE(fused.empty());
  EXPECT_EQ(fused, trainedBits(*GetParam(), classification("adamw"), false, 2));
}

INSTANTIATE_TEST_SUITE_P(Models, Bits,
                         testing::Values(&models::mlp, &models::cnn, &models::embedding,
                                         &wide));

TEST(Compile, TwiceGivesTheSameBytes) {
  PlanFolder folder;
  for (const char *name : {"a.plan", "b.plan"}) {
    Compiled compiled =
        compileText(models::cnn, optionsFor(classification(), folder.file(name)));
    ASSERT_TRUE(compiled.status.ok()) << compiled.status.message;
  }
  EXPECT_EQ(readBytes(folder.file("a.plan")), readBytes(folder.file("b.plan")));
  EXPECT_EQ(readBytes(folder.file("a.safetensors")),
            readBytes(folder.file("b.safetensors")));
}

TEST(Compile, RefusesABudgetThatCannotBeMet) {
  PlanFolder folder;
  CompileOptions options = optionsFor(classification(), folder.file("m.plan"));
  options.spec.budgetBytes = 1000;
  Compiled compiled = compileText(models::mlp, options);
  EXPECT_EQ(compiled.status.code, StatusCode::doesNotFit);
  EXPECT_NE(compiled.status.message.find(std::to_string(compiled.report.arenaBytes)),
            std::string::npos)
      << compiled.status.message;
  EXPECT_FALSE(std::filesystem::exists(folder.file("m.plan")));
}

TEST(Compile, ReportAddsUpToTheArena) {
  PlanFolder folder;
  Compiled compiled =
      compileText(models::mlp, optionsFor(classification(), folder.file("m.plan")));
  ASSERT_TRUE(compiled.status.ok()) << compiled.status.message;
  int64_t sum = 0;
  for (auto &[category, bytes] : compiled.report.arena)
    sum += bytes;
  EXPECT_EQ(sum, compiled.report.arenaBytes);
  EXPECT_EQ(compiled.report.arenaBytes,
            compiled.report.stateBytes + compiled.report.stepBytes);
  EXPECT_GT(compiled.report.stepUs, 0);
}

} // namespace
} // namespace sluice
