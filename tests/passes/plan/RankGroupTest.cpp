// Law 8: N ranks of M micro-batches each are, bit for bit, one rank with
// accumulate: {count: N * M, as_ranks: N}: parameters, moments, masters, statistics and
// the loss, for full windows and for those that an epoch's end cuts short.

#include "runtime/comm/LocalGroup.h"
#include "tests/passes/plan/PlanFixture.h"
#include "tests/passes/train/Models.h"

#include <gtest/gtest.h>

#include <thread>

namespace sluice {
namespace {

struct RankCase {
  const char *name;
  std::string model;
  int ranks = 2;
  int64_t perRank = 1;
  void (*change)(TrainingSpec &spec) = nullptr;
};

TrainingSpec specOf(const RankCase &one) {
  TrainingSpec spec;
  spec.loss.kind = "cross_entropy";
  spec.loss.logits = "logits";
  spec.clip = {"global_norm", 0.5};
  spec.threads = 1;
  InitRule &rule = spec.init.emplace_back();
  rule.from = "normal";
  rule.std = 0.3;
  if (one.change)
    one.change(spec);
  return spec;
}

class RankGroup : public testing::TestWithParam<RankCase> {
protected:
  void SetUp() override {
    const RankCase &one = GetParam();
    TrainingSpec many = specOf(one), alone = specOf(one);
    many.ranks = one.ranks, many.accumulate = one.perRank;
    alone.asRanks = one.ranks, alone.accumulate = one.ranks * one.perRank;
    compile(many, "many.plan");
    compile(alone, "alone.plan");
    as = std::make_unique<Running>(folder.file("alone.plan"), 1);
    ASSERT_TRUE(as->session);
    CommOptions options;
    options.crowded = true;
    auto made = LocalGroup::create(one.ranks, options);
    ASSERT_TRUE(made.ok());
    group = *made;
  }

  void compile(const TrainingSpec &spec, const std::string &name) {
    CompileOptions options;
    options.spec = spec;
    options.outPath = folder.file(name);
    Compiled compiled = compileText(GetParam().model, options);
    ASSERT_TRUE(compiled.status.ok()) << compiled.status.message;
  }

  /// The micro-batch `index` of all that were ever taken.
  struct Feed {
    std::vector<std::string> storage;
    Batch batch;
  };
  Feed feedOf(const Plan &plan, int64_t index, int64_t count) const {
    const char *program = plan.accumulate() > 1 ? "micro" : "step";
    Values values = inputsOf(plan, program, 7 + 13 * static_cast<unsigned>(index));
    Feed feed;
    for (const InputSpec &input : plan.inputs(program))
      feed.storage.push_back(Running::bytesOf(values.at(input.name), input.dtype));
    for (const std::string &bytes : feed.storage)
      feed.batch.data.push_back(bytes.data());
    feed.batch.count = count;
    feed.batch.firstSample = 4 * index;
    return feed;
  }

  struct Window {
    int64_t first = 0, length = 0, lastCount = 0; ///< in micro-batches; samples
    int64_t countOf(int64_t k) const {
      return k + 1 == length && lastCount > 0 ? lastCount : 4;
    }
  };

  static Status step(Session &session, const Feed &feed, StepResult &result) {
    return session.step(feed.batch, result);
  }

  /// What the one rank makes of the windows.
  std::vector<StepResult> runAlone(const std::vector<Window> &windows) {
    std::vector<StepResult> results;
    for (const Window &window : windows) {
      StepResult result;
      for (int64_t k = 0; k < window.length; ++k)
        EXPECT_TRUE(step(*as->session,
                         feedOf(as->session->plan(), window.first + k, window.countOf(k)),
                         result)
                        .ok());
      if (!result.updated)
        EXPECT_TRUE(as->session->flush(result).ok());
      results.push_back(result);
    }
    return results;
  }

  using Saved = std::map<std::string, std::string>;

  Saved runRank(Communicator &comm, const std::vector<Window> &windows,
                std::vector<StepResult> &results, int threads) {
    auto plan = PlanReader::readFile(folder.file("many.plan"));
    SessionOptions options;
    options.threads = threads;
    options.stepPattern = 0xA5;
    options.communicator = &comm;
    auto session = Session::create(*plan, options);
    EXPECT_TRUE(session.ok()) << session.status().message;
    if (!session)
      return {};
    int64_t perRank = GetParam().perRank, first = perRank * comm.rank();
    for (const Window &window : windows) {
      StepResult result;
      Status status = Status::success();
      for (int64_t k = first; k < std::min(first + perRank, window.length); ++k)
        if (status.ok())
          status = step(**session, feedOf(**plan, window.first + k, window.countOf(k)),
                        result);
      if (status.ok() && !result.updated)
        status = (*session)->flush(result);
      EXPECT_TRUE(status.ok()) << status.message;
      if (!status.ok()) {
        comm.abort(status);
        return {};
      }
      results.push_back(result);
      int64_t end = window.first + window.length - 1;
      EXPECT_EQ((*session)->samples(), 4 * end + window.countOf(window.length - 1));
    }
    Saved saved;
    for (const fbs::StateTensor *tensor : *(*plan)->raw().state())
      if (tensor->saved()) {
        auto bytes = (*session)->state(tensor->name()->string_view());
        saved[tensor->name()->str()] = std::string(bytes.begin(), bytes.end());
      }
    return saved;
  }

  PlanFolder folder;
  std::unique_ptr<Running> as;
  std::shared_ptr<LocalGroup> group;
};

TEST_P(RankGroup, HasTheBitsOfOneRankThatPlaysAll) {
  int ranks = GetParam().ranks;
  int64_t all = ranks * GetParam().perRank;
  std::vector<Window> windows;
  int64_t first = 0;
  for (int64_t length = all; length >= 1; --length) {
    windows.push_back({first, length, length == all ? 0 : 3});
    first += length;
  }
  windows.push_back({first, all, 0}); // partial windows have left nothing behind
  std::vector<StepResult> alone = runAlone(windows);
  std::vector<Saved> saved(ranks);
  std::vector<std::vector<StepResult>> results(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      auto comm = group->join(rank);
      ASSERT_TRUE(comm.ok());
      saved[rank] = runRank(**comm, windows, results[rank], 1);
    });
  for (std::thread &thread : threads)
    thread.join();
  for (int rank = 0; rank < ranks; ++rank) {
    ASSERT_EQ(results[rank].size(), alone.size());
    for (size_t i = 0; i < alone.size(); ++i) {
      EXPECT_EQ(results[rank][i].windowLossSum, alone[i].windowLossSum) << i;
      EXPECT_EQ(results[rank][i].windowLossCount, alone[i].windowLossCount) << i;
      float norm = results[rank][i].gradNorm.value_or(0); // may be NaN
      EXPECT_EQ(std::bit_cast<uint32_t>(norm),
                std::bit_cast<uint32_t>(alone[i].gradNorm.value_or(0)))
          << i;
      EXPECT_EQ(results[rank][i].lossScale, alone[i].lossScale) << i;
    }
    for (auto &[name, bytes] : as->saved())
      EXPECT_EQ(saved[rank][name] == bytes, true) << "rank " << rank << ": " << name;
  }
}

void amp(TrainingSpec &spec) { spec.precision.compute = "amp_bf16"; }
void scaled(TrainingSpec &spec) {
  spec.precision.compute = "amp_fp16";
  spec.lossScale.kind = "dynamic";
  spec.lossScale.init = 1024; // some updates are applied, some skipped
}
void plainSgd(TrainingSpec &spec) {
  spec.optimizer.kind = "sgd";
  spec.clip = {};
}

INSTANTIATE_TEST_SUITE_P(
    Of, RankGroup,
    testing::Values(
        RankCase{"Mlp2x1", models::mlp, 2, 1}, RankCase{"Mlp2x3", models::mlp, 2, 3},
        RankCase{"Mlp4x1", models::mlp, 4, 1}, RankCase{"Mlp4x3", models::mlp, 4, 3},
        RankCase{"Mlp3x2Sgd", models::mlp, 3, 2, plainSgd},
        RankCase{"Cnn2x1", models::cnn, 2, 1}, RankCase{"Cnn2x3", models::cnn, 2, 3},
        RankCase{"Cnn4x1", models::cnn, 4, 1}, RankCase{"Cnn4x3", models::cnn, 4, 3},
        RankCase{"CnnBf16x2x1", models::cnn, 2, 1, amp},
        RankCase{"CnnBf16x2x3", models::cnn, 2, 3, amp},
        RankCase{"CnnScaled2x1", models::cnn, 2, 1, scaled},
        RankCase{"CnnScaled2x3", models::cnn, 2, 3, scaled}),
    [](const auto &info) { return info.param.name; });

} // namespace
} // namespace sluice
