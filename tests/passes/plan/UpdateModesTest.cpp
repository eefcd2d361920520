// Groups that interleave or are deferred: every mode is its recurrence, bit for bit,
// alone and over ranks, and goes on with the same bits after a kill at any step.

#include "runtime/Checkpoint.h"
#include "runtime/comm/LocalGroup.h"
#include "tests/passes/plan/SequentialUpdates.h"
#include "tests/passes/train/Models.h"

#include <gtest/gtest.h>

#include <thread>

namespace sluice {
namespace {

/// Two groups of the mlp, with rates of their own.
TrainingSpec specOf(const std::string &optimizer) {
  TrainingSpec spec;
  spec.loss.kind = "cross_entropy";
  spec.loss.logits = "logits";
  spec.threads = 1;
  spec.optimizer = optimizerDefaults(optimizer);
  spec.optimizer.lr = 0.05;
  if (optimizer == "sgd")
    spec.optimizer.momentum = 0.9;
  ParameterGroupSpec &group = spec.parameterGroups.emplace_back();
  group.match = "fc2*";
  group.options.lr = 0.03;
  group.keys = {"lr"};
  InitRule &rule = spec.init.emplace_back();
  rule.from = "normal";
  rule.std = 0.3;
  spec.update.safeLr = false;
  return spec;
}

struct ModeCase {
  const char *name;
  UpdateMode first, second; // of fc1 and the norm, of fc2
  int ranks = 1;
  std::string optimizer = "adamw";
  CompensationSpec how = {};
};

UpdateMode interleave(int64_t every) { return {"interleave", every, 0}; }
UpdateMode defer(int64_t delay) { return {"defer", 1, delay}; }

TrainingSpec staggered(const ModeCase &one) {
  TrainingSpec spec = specOf(one.optimizer);
  spec.ranks = one.ranks;
  spec.update.rules = {{"a", "[fn][co][1r]*", one.first}, {"b", "fc2*", one.second}};
  spec.update.compensation = one.how;
  return spec;
}

class UpdateModes : public testing::TestWithParam<ModeCase> {
protected:
  void compile(const TrainingSpec &spec, const std::string &name) {
    CompileOptions options;
    options.spec = spec;
    options.outPath = folder.file(name);
    Compiled compiled = compileText(models::mlp, options);
    ASSERT_TRUE(compiled.status.ok()) << compiled.status.message;
  }

  struct Feed {
    std::vector<std::string> storage;
    Batch batch;
  };
  static Feed feedOf(const Plan &plan, int64_t index) {
    const char *program = plan.trainingProgram();
    Values values = inputsOf(plan, program, 7 + 13 * static_cast<unsigned>(index));
    Feed feed;
    for (const InputSpec &input : plan.inputs(program))
      feed.storage.push_back(Running::bytesOf(values.at(input.name), input.dtype));
    for (const std::string &bytes : feed.storage)
      feed.batch.data.push_back(bytes.data());
    feed.batch.count = index % 3 == 2 ? 3 : 4; // some are short
    feed.batch.firstSample = 4 * index;
    return feed;
  }

  std::vector<GroupMode> modes() const {
    const ModeCase &one = GetParam();
    int64_t turn = one.first.every > 1 ? 1 : 0;
    return {{"default",
             {"fc1.weight", "fc1.bias", "norm.weight"},
             one.first.every,
             0,
             one.first.delay},
            {"group1",
             {"fc2.weight"},
             one.second.every,
             one.second.every > 1 ? turn % one.second.every : 0,
             one.second.delay}};
  }

  static void train(Session &session, int64_t from, int64_t to, int64_t flushAt) {
    for (int64_t step = from; step < to; ++step) {
      Feed feed = feedOf(session.plan(), step * session.ranks() + session.rank());
      StepResult result;
      Status status = session.step(feed.batch, result);
      ASSERT_TRUE(status.ok()) << status.message;
      ASSERT_TRUE(result.updated);
      if (step + 1 == flushAt)
        ASSERT_TRUE(session.applyPending().ok());
    }
  }

  std::map<std::string, std::string> runRank(Communicator *comm, int64_t steps,
                                             int64_t flushAt) {
    auto plan = PlanReader::readFile(folder.file("modes.plan"));
    EXPECT_TRUE(plan.ok()) << plan.status().message;
    if (!plan)
      return {};
    SessionOptions options;
    options.threads = 1;
    options.stepPattern = 0xA5;
    options.communicator = comm;
    auto session = Session::create(*plan, options);
    EXPECT_TRUE(session.ok()) << session.status().message;
    if (!session)
      return {};
    train(**session, 0, steps, flushAt);
    std::map<std::string, std::string> saved;
    for (const fbs::StateTensor *tensor : *(*plan)->raw().state())
      if (tensor->saved()) {
        auto bytes = (*session)->state(tensor->name()->string_view());
        saved[tensor->name()->str()] = std::string(bytes.begin(), bytes.end());
      }
    return saved;
  }

  PlanFolder folder;
};

TEST_P(UpdateModes, AreTheirRecurrence) {
  constexpr int64_t steps = 9, flushAt = 6;
  const ModeCase &one = GetParam();
  compile(staggered(one), "modes.plan");
  TrainingSpec alone = specOf(one.optimizer);
  alone.accumulate = 1 << 20;
  compile(alone, "alone.plan");
  SequentialUpdates reference(folder.file("alone.plan"), modes(), one.how);
  for (int64_t step = 0; step < steps; ++step) {
    std::vector<Feed> feeds;
    std::vector<Batch> batches;
    for (int rank = 0; rank < one.ranks; ++rank)
      feeds.push_back(feedOf(reference.session().plan(), step * one.ranks + rank));
    for (Feed &feed : feeds)
      batches.push_back(feed.batch);
    reference.step(batches);
    if (step + 1 == flushAt)
      reference.applyAll(batches[0]);
  }
  std::vector<std::map<std::string, std::string>> saved(one.ranks);
  if (one.ranks == 1) {
    saved[0] = runRank(nullptr, steps, flushAt);
  } else {
    CommOptions options;
    options.crowded = true;
    auto group = LocalGroup::create(one.ranks, options);
    ASSERT_TRUE(group.ok());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < one.ranks; ++rank)
      threads.emplace_back([&, rank] {
        auto comm = (*group)->join(rank);
        ASSERT_TRUE(comm.ok());
        saved[rank] = runRank(comm->get(), steps, flushAt);
      });
    for (std::thread &thread : threads)
      thread.join();
  }
  for (auto &[name, bytes] : reference.saved())
    for (int rank = 0; rank < one.ranks; ++rank)
      EXPECT_EQ(saved[rank][name] == bytes, true) << "rank " << rank << ": " << name;
  for (auto &[name, values] : reference.meanSquares())
    EXPECT_EQ(std::memcmp(saved[0]["opt/" + name + "/dc_mean_square"].data(),
                          values.data(), values.size() * sizeof(float)),
              0)
        << name;
}

TEST_P(UpdateModes, GoOnAfterAKillAtAnyStep) {
  if (GetParam().ranks > 1)
    GTEST_SKIP() << "checkpoints of ranks are those of rank 0";
  constexpr int64_t steps = 7;
  compile(staggered(GetParam()), "modes.plan");
  Running whole(folder.file("modes.plan"), 1);
  for (int64_t killed = 0; killed < steps; ++killed) {
    train(*whole.session, killed, killed + 1, -1);
    auto path =
        saveCheckpoint(*whole.session, folder.file("at" + std::to_string(killed)), {});
    ASSERT_TRUE(path.ok()) << path.status().message;
  }
  for (int64_t killed = 0; killed < steps; ++killed) {
    Running resumed(folder.file("modes.plan"), 1);
    auto info =
        loadCheckpoint(*resumed.session, folder.file("at" + std::to_string(killed)));
    ASSERT_TRUE(info.ok()) << info.status().message;
    train(*resumed.session, killed + 1, steps, -1);
    EXPECT_EQ(resumed.saved() == whole.saved(), true) << "killed after " << killed;
  }
}

CompensationSpec constant() {
  CompensationSpec how;
  how.kind = "dc_asgd", how.lambda = 0.5, how.adaptive = false;
  return how;
}
CompensationSpec adaptive() {
  CompensationSpec how;
  how.kind = "dc_asgd";
  return how;
}

INSTANTIATE_TEST_SUITE_P(
    Of, UpdateModes,
    testing::Values(ModeCase{"Interleaved", interleave(2), interleave(2)},
                    ModeCase{"InterleavedBesideSync", interleave(2), {}, 1, "sgd"},
                    ModeCase{"Deferred", defer(1), defer(1)},
                    ModeCase{"DeferredTwice", defer(2), defer(1), 1, "sgd"},
                    ModeCase{"DeferredBesideSync", {}, defer(3)},
                    ModeCase{"DcConstant", defer(2), defer(2), 1, "sgd", constant()},
                    ModeCase{"DcAdaptive", defer(1), defer(2), 1, "adamw", adaptive()},
                    ModeCase{"InterleavedOfTwoRanks", interleave(2), interleave(2), 2},
                    ModeCase{"DeferredOfTwoRanks", defer(1), defer(2), 2},
                    ModeCase{"DeferredOfFourRanks", defer(1), defer(1), 4, "sgd",
                             adaptive()}),
    [](const auto &info) { return std::string(info.param.name); });

struct PlainModes : UpdateModes {};

TEST_F(PlainModes, WithoutADelayOrTurnsAreSync) {
  auto planOf = [&](UpdateMode mode, const char *name) {
    TrainingSpec spec = specOf("adamw");
    spec.update.rules = {{"a", "[fn][co][1r]*", {}}, {"b", "fc2*", {}}};
    spec.update.mode = std::move(mode);
    compile(spec, name);
    Running running(folder.file(name), 1);
    train(*running.session, 0, 5, -1);
    return running.saved();
  };
  auto sync = planOf({}, "sync.plan");
  EXPECT_EQ(planOf(defer(0), "defer.plan") == sync, true);
  EXPECT_EQ(planOf(interleave(1), "interleave.plan") == sync, true);
}

// A gradient of a delay of t steps descends on a quadratic of curvature a as long as
// rate * a < 2 sin(pi / (4 t + 2)).
TEST_F(PlainModes, DescendOnAQuadraticUpToTheBoundOfTheirDelay) {
  for (int64_t delay = 0; delay <= 16; ++delay) {
    TrainingSpec spec;
    spec.loss.kind = "mse"; // of w * 1 and 0: curvature 2
    spec.loss.logits = "y";
    spec.optimizer = optimizerDefaults("sgd");
    spec.update.mode = defer(delay);
    spec.update.safeLr = false;
    CompileOptions options;
    options.spec = spec;
    options.outPath = folder.file(std::to_string(delay) + ".plan");
    Compiled compiled = compileText(models::line, options);
    ASSERT_TRUE(compiled.status.ok()) << compiled.status.message;
    double bound = 2 * std::sin(3.14159265358979 / double(4 * delay + 2)) / 2;
    auto endOf = [&](double share) {
      Running running(options.outPath, 1);
      EXPECT_TRUE(running.session->setRate("default", share * bound).ok());
      float ones[] = {1, 1, 1}, zeros[] = {0, 0, 0};
      Batch batch;
      for (const InputSpec &input : running.session->plan().inputs("step"))
        batch.data.push_back(input.name == "x" ? ones : zeros);
      batch.count = 3;
      StepResult result;
      for (int64_t i = 0; i < 400 * (delay + 1); ++i)
        EXPECT_TRUE(running.session->step(batch, result).ok());
      return result.loss();
    };
    EXPECT_LT(endOf(0.97), 1e-3) << delay;
    EXPECT_GT(endOf(1.03), 1e3) << delay;
  }
}

} // namespace
} // namespace sluice
