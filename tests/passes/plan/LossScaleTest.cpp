// Loss scaling through plan file and runtime, against a scaler of a few lines and against
// plans without one. Gradients that are not finite are planted by infinite inputs.

#include "runtime/Checkpoint.h"
#include "tests/passes/plan/PlanFixture.h"
#include "tests/passes/train/Models.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

/// torch.cuda.amp.GradScaler: `update()` after a step, with limits.
struct Scaler {
  double scale, backoff = 0.5, min = 1, max = 0x1p24;
  int64_t interval = 2000, good = 0, skipped = 0;

  void update(bool isFinite) {
    if (!isFinite) {
      scale = std::max(scale * backoff, min);
      good = 0;
      ++skipped;
    } else if (++good >= interval) {
      scale = std::min(2 * scale, max);
      good = 0;
    }
  }
};

TrainingSpec training(int64_t accumulate = 1) {
  TrainingSpec spec;
  spec.loss.kind = "cross_entropy";
  spec.loss.logits = "logits";
  spec.optimizer.lr = 0.05;
  spec.clip = {"global_norm", 0.5};
  spec.schedule.kind = "linear";
  spec.schedule.warmupSteps = 3;
  spec.schedule.totalSteps = 20;
  spec.threads = 2;
  spec.seed = 3;
  spec.accumulate = accumulate;
  return spec;
}

TrainingSpec scaled(TrainingSpec spec, const std::string &kind = "dynamic") {
  spec.lossScale = {.kind = kind, .init = 8, .max = 16, .growthInterval = 2};
  return spec;
}

/// State that only updates change: parameters, moments, statistics.
using State = std::map<std::string, std::string>;

class Runner {
public:
  Runner(const std::string &model, const TrainingSpec &spec, const std::string &path,
         int threads = 2)
      : spec(spec) {
    CompileOptions options;
    options.spec = spec;
    options.spec.init.emplace_back().from = "normal";
    options.spec.init.back().std = 0.3;
    options.outPath = path;
    Compiled compiled = compileText(model, options);
    EXPECT_TRUE(compiled.status.ok()) << compiled.status.message;
    running.emplace(path, threads);
  }

  Session &session() { return *running->session; }

  /// One micro-batch; with `overflows` no gradient of it is finite.
  Status feed(unsigned seed, bool overflows, StepResult &result) {
    std::string entry = spec.accumulate > 1 ? "micro" : "step";
    Values values = inputsOf(session().plan(), entry, seed);
    if (overflows)
      for (double &x : values["x"].reals)
        x = std::numeric_limits<double>::infinity();
    return feed(values, result);
  }
  Status feed(const Values &values, StepResult &result) {
    std::string entry = spec.accumulate > 1 ? "micro" : "step";
    Batch batch = running->batchOf(values, entry);
    batch.firstSample = session().samples();
    return session().step(batch, result);
  }
  StepResult step(unsigned seed, bool overflows = false) {
    StepResult result;
    Status status = feed(seed, overflows, result);
    EXPECT_TRUE(status.ok()) << status.message;
    return result;
  }

  State state() const {
    State kept = running->saved();
    for (const char *name : {"step", "scale/value", "scale/good_steps", "scale/skipped"})
      kept.erase(name);
    return kept;
  }
  template <class T> T scalar(const std::string &name) {
    T value{};
    EXPECT_TRUE(session().readState(name, &value, sizeof value).ok()) << name;
    return value;
  }

private:
  TrainingSpec spec;
  std::optional<Running> running;
};

void expectScale(Runner &run, const Scaler &scaler) {
  EXPECT_EQ(run.scalar<float>("scale/value"), scaler.scale);
  EXPECT_EQ(run.scalar<int64_t>("scale/good_steps"), scaler.good);
  EXPECT_EQ(run.scalar<int64_t>("scale/skipped"), scaler.skipped);
  EXPECT_EQ(run.session().skippedUpdates(), scaler.skipped);
}

/// P5, with and without accumulation: what is skipped leaves no trace, so that the other
/// batches alone give the same bits; and a scale by itself leaves none either.
void expectLikeScaler(int64_t accumulate, int threads) {
  PlanFolder folder;
  Runner run(models::mlp, scaled(training(accumulate)), folder.file("a.plan"), threads);
  Runner plain(models::mlp, training(accumulate), folder.file("b.plan"), threads);
  Scaler scaler{.scale = 8, .max = 16, .interval = 2};
  const bool overflows[] = {false, false, true, false, false, false, true, true, false};
  unsigned seed = 10;
  for (bool isLost : overflows) {
    State before = run.state();
    double rate = *run.session().rate();
    EXPECT_EQ(rate, *plain.session().rate());
    StepResult result;
    for (int64_t i = 0; i < accumulate; ++i, ++seed) {
      result = run.step(seed, isLost && i == std::min<int64_t>(1, accumulate - 1));
      if (!isLost)
        plain.step(seed);
    }
    EXPECT_TRUE(result.updated);
    EXPECT_EQ(result.skipped, isLost);
    EXPECT_EQ(result.lossScale, static_cast<float>(scaler.scale));
    scaler.update(!isLost);
    expectScale(run, scaler);
    EXPECT_EQ(run.state() == before, isLost);
    EXPECT_EQ(run.state(), plain.state());
    if (isLost) {
      EXPECT_EQ(*run.session().rate(), rate);
    }
  }
  EXPECT_EQ(run.session().updates(), std::ssize(overflows));
  EXPECT_EQ(plain.session().updates(), std::ssize(overflows) - 3);
}

TEST(LossScale, FollowsTheScalerAndLeavesNoTrace) {
  for (int threads : {1, 2})
    expectLikeScaler(1, threads);
}

TEST(LossScale, SkipsAWindowForOneOfItsMicroBatches) {
  for (int threads : {1, 2})
    expectLikeScaler(4, threads);
}

TEST(LossScale, KeepsRunningStatisticsOfSkippedUpdates) {
  for (int64_t accumulate : {1, 3}) {
    PlanFolder folder;
    TrainingSpec spec = scaled(training(accumulate));
    spec.schedule = {}; // warm-up begins at 0
    Runner run(models::cnn, spec, folder.file("m.plan"));
    unsigned seed = 5;
    for (int update = 0; update < 4; ++update) {
      State before = run.state();
      bool isLost = update == 1 || update == 3;
      StepResult result;
      for (int64_t i = 0; i < accumulate; ++i)
        result = run.step(seed++, isLost && i == 0);
      ASSERT_EQ(result.skipped, isLost);
      for (const auto &[name, bytes] : run.state())
        EXPECT_EQ(bytes == before[name], isLost) << name << " of update " << update;
    }
  }
}

TEST(LossScale, IsTheSameUnderRecomputeAndEveryNumberOfThreads) {
  PlanFolder folder;
  for (const char *compute : {"fp32", "amp_fp16"}) {
    std::vector<State> ends;
    for (bool recomputes : {false, true})
      for (int threads : {1, 2}) {
        TrainingSpec spec = scaled(training(2));
        spec.precision.compute = compute;
        spec.precision.master = "fp32";
        spec.recompute = recomputes ? "sqrt" : "none";
        Runner run(models::cnn, spec, folder.file("m.plan"), threads);
        for (unsigned step = 0; step < 8; ++step)
          run.step(20 + step, step == 3 || step == 4);
        EXPECT_EQ(run.session().skippedUpdates(), 2);
        ends.push_back(run.state());
      }
    for (const State &end : ends)
      EXPECT_EQ(end, ends[0]) << compute;
  }
}

/// A scale at which f16 gradients overflow falls until they do not.
TEST(LossScale, SettlesUnderF16) {
  PlanFolder folder;
  TrainingSpec spec = training();
  spec.precision.compute = "amp_fp16";
  spec.precision.master = "fp32";
  spec.lossScale = {.kind = "dynamic", .init = 0x1p24};
  Runner run(models::mlp, spec, folder.file("m.plan"));
  State before = run.state();
  int64_t skipped = 0;
  while (run.step(1).skipped) {
    EXPECT_EQ(run.state(), before);
    ASSERT_LT(++skipped, 24);
  }
  EXPECT_GT(skipped, 0);
  EXPECT_NE(run.state(), before);
  EXPECT_EQ(run.scalar<float>("scale/value"), std::ldexp(0x1p24, -int(skipped)));
  EXPECT_FALSE(run.step(1).skipped);
}

TEST(LossScale, AtItsFloorIsAnErrorThatNamesTheGradient) {
  PlanFolder folder;
  TrainingSpec spec = scaled(training());
  spec.lossScale.init = 2;
  Runner run(models::mlp, spec, folder.file("m.plan"));
  EXPECT_TRUE(run.step(1, true).skipped);
  State before = run.state();
  StepResult result;
  Status status = run.feed(2, true, result);
  EXPECT_EQ(status.code, StatusCode::damaged);
  EXPECT_NE(status.message.find("'fc1.bias' is not finite at the least loss scale, 1"),
            std::string::npos)
      << status.message;
  EXPECT_EQ(run.state(), before);
  EXPECT_EQ(run.session().skippedUpdates(), 2);
  EXPECT_FALSE(run.step(3).skipped); // as if nothing had been
}

TEST(LossScale, ThatIsStaticIsAlwaysAtItsFloor) {
  PlanFolder folder;
  TrainingSpec spec = training();
  spec.lossScale = {.kind = "static", .init = 1024, .min = 1024, .max = 1024};
  Runner run(models::mlp, spec, folder.file("m.plan"));
  Runner plain(models::mlp, training(), folder.file("b.plan"));
  for (unsigned seed : {1, 2, 3}) {
    EXPECT_EQ(run.step(seed).lossScale, 1024.0f);
    plain.step(seed);
  }
  EXPECT_EQ(run.state(), plain.state());
  StepResult result;
  EXPECT_NE(run.feed(4, true, result).message.find("least loss scale, 1024"),
            std::string::npos);
  EXPECT_EQ(run.state(), plain.state());
}

/// One weight, so that the norm is what it moves by: 2^5 / |gradient of the sum|.
TEST(LossScale, ThatAdaptsIsThePowerOfTwoByTheGradient) {
  PlanFolder folder;
  TrainingSpec spec = descent("mse");
  spec.threads = 1;
  spec.lossScale = {.kind = "adaptive", .init = 1, .min = 0x1p-6, .max = 0x1p10};
  Runner run(models::line, spec, folder.file("m.plan"), 1);
  double previous = 1;
  std::set<double> seen;
  for (unsigned seed = 0; seed < 12; ++seed) {
    float before = 0.25f * static_cast<float>(1 << seed); // gradients of many sizes
    ASSERT_TRUE(run.session().writeState("param/w", &before, 4).ok());
    bool isLost = seed == 5;
    StepResult result = run.step(seed, isLost);
    EXPECT_EQ(result.lossScale, static_cast<float>(previous));
    double moved = double(run.scalar<float>("param/w")) - before;
    double wanted =
        std::exp2(std::round(std::log2(32 / std::abs(moved * result.lossCount))));
    double expected =
        isLost ? std::max(previous / 2, 0x1p-6) : std::clamp(wanted, 0x1p-6, 0x1p10);
    EXPECT_EQ(run.scalar<float>("scale/value"), expected) << seed;
    previous = expected;
    seen.insert(expected);
  }
  EXPECT_GT(seen.size(), 4u);
}

/// P4: clipping sees the gradient itself, here (0.03, 0.04), of norm 0.05.
TEST(LossScale, IsUndoneBeforeClipping) {
  const std::string model = R"(
graph.parameter @"param/w" : tensor<2xf32> "parameter"
func.func @forward(%x: tensor<1x2xf32> {graph.name = "x"}) -> (tensor<1x2xf32> {graph.name = "y"}) {
  %w = graph.read @"param/w" : tensor<2xf32>
  %b = graph.broadcast %w {shape = array<i64: 1, 2>} : (tensor<2xf32>) -> tensor<1x2xf32>
  %y = graph.mul %x, %b : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x2xf32>
  return %y : tensor<1x2xf32>
})";
  PlanFolder folder;
  TrainingSpec spec = descent("sum");
  spec.threads = 1;
  spec.clip = {"global_norm", 1};
  spec.lossScale = {.kind = "static", .init = 1024, .min = 1024, .max = 1024};
  Runner run(model, spec, folder.file("m.plan"), 1);
  std::array<float, 2> w = {0, 0};
  ASSERT_TRUE(run.session().writeState("param/w", w.data(), sizeof w).ok());
  StepResult result;
  ASSERT_TRUE(run.feed({{"x", real({1, 2}, {0.03f, 0.04f})}}, result).ok());
  EXPECT_EQ((run.scalar<std::array<float, 2>>("param/w")),
            (std::array<float, 2>{-0.03f, -0.04f}));
  EXPECT_NEAR(*result.gradNorm, 0.05, 1e-8);
}

TEST(LossScale, DoesNotTouchEvaluation) {
  PlanFolder folder;
  Runner run(models::mlp, scaled(training()), folder.file("a.plan"));
  Runner plain(models::mlp, training(), folder.file("b.plan"));
  for (Runner *one : {&run, &plain})
    for (unsigned seed : {1, 2, 3})
      one->step(seed);
  float scale = run.scalar<float>("scale/value");
  std::vector<double> losses;
  for (Runner *one : {&run, &plain}) {
    Values values = inputsOf(one->session().plan(), "eval", 9);
    std::vector<std::string> bytes;
    Batch batch;
    for (const InputSpec &input : one->session().plan().inputs("eval"))
      bytes.push_back(Running::bytesOf(values.at(input.name), input.dtype));
    for (const std::string &part : bytes)
      batch.data.push_back(part.data());
    batch.count = one->session().plan().batch();
    StepResult result;
    ASSERT_TRUE(one->session().eval(batch, result).ok());
    losses.push_back(result.lossSum);
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(run.scalar<float>("scale/value"), scale);
}

/// A group that is frozen while training is not asked.
TEST(LossScale, IgnoresGradientsOfFrozenGroups) {
  PlanFolder folder;
  Runner run(models::mlp, scaled(training()), folder.file("m.plan"));
  ASSERT_TRUE(run.session().setFrozen("default", true).ok());
  EXPECT_FALSE(run.step(1, true).skipped);
  ASSERT_TRUE(run.session().setFrozen("default", false).ok());
  EXPECT_TRUE(run.step(1, true).skipped);
}

TEST(LossScale, GoesOnFromACheckpointBitForBit) {
  PlanFolder folder;
  auto lost = [](unsigned step) { return step == 1 || step == 5; };
  Runner whole(models::mlp, scaled(training()), folder.file("m.plan"));
  for (unsigned step = 0; step < 8; ++step) {
    whole.step(step, lost(step));
    if (step == 3) {
      ASSERT_TRUE(saveCheckpoint(whole.session(), folder.file("saved")).ok());
    }
  }
  Runner second(models::mlp, scaled(training()), folder.file("m.plan"));
  ASSERT_TRUE(loadCheckpoint(second.session(), folder.file("saved")).ok());
  EXPECT_EQ(second.session().skippedUpdates(), 1);
  for (unsigned step = 4; step < 8; ++step)
    second.step(step, lost(step));
  EXPECT_EQ(second.state(), whole.state());
  EXPECT_EQ(second.scalar<float>("scale/value"), whole.scalar<float>("scale/value"));
  EXPECT_EQ(second.scalar<int64_t>("scale/good_steps"),
            whole.scalar<int64_t>("scale/good_steps"));
}

TEST(LossScale, CheckpointsLoadWithAndWithoutOne) {
  PlanFolder folder;
  Runner with(models::mlp, scaled(training()), folder.file("a.plan"));
  Runner without(models::mlp, training(), folder.file("b.plan"));
  with.step(1);
  with.step(2, true);
  ASSERT_TRUE(saveCheckpoint(with.session(), folder.file("with")).ok());
  auto info = loadCheckpoint(without.session(), folder.file("with"));
  ASSERT_TRUE(info.ok()) << info.status().message;
  EXPECT_NE(info->notes.at(0).find("the plan has none"), std::string::npos);
  EXPECT_EQ(without.state(), with.state());
  without.step(3);
  ASSERT_TRUE(saveCheckpoint(without.session(), folder.file("without")).ok());
  info = loadCheckpoint(with.session(), folder.file("without"));
  ASSERT_TRUE(info.ok()) << info.status().message;
  EXPECT_NE(info->notes.at(0).find("begins anew"), std::string::npos);
  EXPECT_EQ(with.scalar<float>("scale/value"), 8);
  EXPECT_EQ(with.session().skippedUpdates(), 0);
}

} // namespace
} // namespace sluice
