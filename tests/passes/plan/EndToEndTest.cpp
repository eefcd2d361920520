// Whole training steps: the plan in the runtime against the same graph in the
// interpreter, in double precision.

#include "tests/passes/plan/PlanFixture.h"
#include "tests/passes/train/Models.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

CompileOptions optionsFor(const TrainingSpec &spec, const std::string &path) {
  CompileOptions options;
  options.spec = spec;
  options.outPath = path;
  return options;
}

TrainingSpec classification(const std::string &optimizer = "sgd") {
  TrainingSpec spec;
  spec.loss.kind = "cross_entropy";
  spec.loss.logits = "logits";
  spec.optimizer.kind = optimizer;
  spec.optimizer.lr = 0.1;
  spec.optimizer.momentum = optimizer == "sgd" ? 0.9 : 0;
  spec.optimizer.eps = 1e-2; // keeps Adam from magnifying rounding
  spec.threads = 3;
  spec.seed = 7;
  return spec;
}

/// Controls as the runtime writes them before a program.
void setControls(Trained &trained, const Session &session, int64_t sample) {
  trained.set("control/seed", static_cast<double>(session.seed()));
  trained.set("control/update", static_cast<double>(session.updates()));
  trained.set("control/sample", static_cast<double>(sample));
  trained.set("control/valid", static_cast<double>(session.plan().batch()));
  for (const fbs::ParamGroup *group : *session.plan().raw().groups()) {
    std::string prefix = "control/" + group->name()->str();
    trained.set(prefix + "/lr", learningRate(*group, session.updates()));
    trained.set(prefix + "/bc1", biasCorrection(group->beta1(), session.updates()));
    trained.set(prefix + "/bc2", biasCorrection(group->beta2(), session.updates()));
  }
}

void expectSameState(Trained &trained, const Session &session, double tolerance) {
  for (const fbs::StateTensor *tensor : *session.plan().raw().state()) {
    if (!tensor->saved() || static_cast<DType>(tensor->dtype()) != DType::f32)
      continue;
    const HostTensor &expected = trained.at(tensor->name()->str());
    auto bytes = session.state(tensor->name()->string_view());
    for (size_t i = 0; i < expected.reals.size(); ++i) {
      float found;
      std::memcpy(&found, bytes.data() + 4 * i, 4);
      ASSERT_NEAR(found, expected.reals[i], tolerance * (1 + std::abs(expected.reals[i])))
          << tensor->name()->str() << "[" << i << "]";
    }
  }
}

/// Trains for some micro-batches in both and compares losses and the whole state.
void expectTrainsLikeInterpreter(const std::string &model, const TrainingSpec &spec,
                                 int steps, double tolerance = 2e-5) {
  PlanFolder folder;
  Compiled compiled = compileText(model, optionsFor(spec, folder.file("m.plan")));
  ASSERT_TRUE(compiled.status.ok()) << compiled.status.message;
  Running running(folder.file("m.plan"), 2);
  ASSERT_TRUE(running.session);
  Trained trained(model, spec);
  ASSERT_TRUE(trained.good) << trained.errors;
  randomize(trained, running);
  std::string entry = spec.accumulate > 1 ? "micro" : "step";
  int64_t batch = running.session->plan().batch();
  for (int step = 0; step < steps; ++step) {
    Values inputs = inputsOf(running.session->plan(), entry, 10 + step);
    setControls(trained, *running.session, step * batch);
    Values expected = trained.run(entry, inputs);
    if (spec.accumulate > 1 && (step + 1) % spec.accumulate == 0)
      trained.run("update");
    StepResult result = running.step(inputs, step * batch);
    double loss = scalar(expected, "loss_sum");
    ASSERT_NEAR(result.lossSum, loss, tolerance * (1 + std::abs(loss)))
        << "step " << step;
    ASSERT_EQ(result.lossCount, scalar(expected, "loss_count"));
    ASSERT_NO_FATAL_FAILURE(expectSameState(trained, *running.session, tolerance))
        << "step " << step;
  }
}

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

/// State after a few steps of a plan compiled with `fuse`, run by `threads`.
std::map<std::string, std::string> trainedBits(const std::string &model, bool fuse,
                                               int threads, FeatureLevel level) {
  PlanFolder folder;
  CompileOptions options = optionsFor(classification("adamw"), folder.file("m.plan"));
  options.fuse = fuse;
  Compiled compiled = compileText(model, options);
  EXPECT_TRUE(compiled.status.ok()) << compiled.status.message;
  Running running(folder.file("m.plan"), threads);
  if (!running.session)
    return {};
  Trained trained(model, options.spec);
  randomize(trained, running);
  for (int step = 0; step < 3; ++step)
    running.step(inputsOf(running.session->plan(), "step", 20 + step), step * 4);
  return running.saved();
}

class Bits : public testing::TestWithParam<const std::string *> {};

TEST_P(Bits, DoNotDependOnThreads) {
  auto one = trainedBits(*GetParam(), true, 1, FeatureLevel::V4);
  ASSERT_FALSE(one.empty());
  EXPECT_EQ(one, trainedBits(*GetParam(), true, 2, FeatureLevel::V4));
  EXPECT_EQ(one, trainedBits(*GetParam(), true, 3, FeatureLevel::V4));
}

TEST_P(Bits, DoNotDependOnFusion) {
  auto fused = trainedBits(*GetParam(), true, 2, FeatureLevel::V4);
  ASSERT_FALSE(fused.empty());
  EXPECT_EQ(fused, trainedBits(*GetParam(), false, 2, FeatureLevel::V4));
}

INSTANTIATE_TEST_SUITE_P(Models, Bits,
                         testing::Values(&models::mlp, &models::cnn, &models::embedding));

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
