// Sessions of several ranks: windows, failures, the training loop, and what the reader
// refuses. The plan is built by hand: sums of a window are reduced before its update.

#include "TestPlan.h"

#include "runtime/Trainer.h"
#include "runtime/comm/LocalGroup.h"

#include <chrono>
#include <functional>
#include <gtest/gtest.h>
#include <thread>

namespace sluice::test {
namespace {

constexpr int64_t batchSize = 4, perRank = 2;

void addPart(fbs::CollectiveT &collective, TestPlan &p, const std::string &name) {
  auto part = std::make_unique<fbs::CollectivePartT>();
  part->name = name;
  part->from_offset = part->to_offset = p.tensor(name).offset;
  part->size = p.tensor(name).size;
  collective.parts.push_back(std::move(part));
}

/// scalarPlan for ranks of two micro-batches each.
TestPlan rankPlan(int64_t ranks) {
  TestPlan p = scalarPlan(batchSize, perRank, 0.25, 2);
  p.plan.ranks = ranks;
  for (auto &program : p.plan.programs)
    if (program->name == "update") {
      auto collective = std::make_unique<fbs::CollectiveT>();
      addPart(*collective, p, "grad/w");
      addPart(*collective, p, "grad/count");
      program->collectives.push_back(std::move(collective));
      program->launches[0]->wait_collectives = 1;
    }
  return p;
}

fbs::ProgramT &update(TestPlan &p) {
  for (auto &program : p.plan.programs)
    if (program->name == "update")
      return *program;
  ADD_FAILURE() << "no program 'update'";
  return *p.plan.programs[0];
}
fbs::CollectiveT &firstCollective(TestPlan &p) { return *update(p).collectives[0]; }

using RankBody = std::function<void(Communicator &)>;

/// Every rank on a thread of its own.
void onRanks(int ranks, const RankBody &body, const CommOptions &options = {}) {
  auto group = LocalGroup::create(ranks, options);
  ASSERT_TRUE(group.ok());
  std::vector<std::unique_ptr<Communicator>> ends;
  for (int rank = 0; rank < ranks; ++rank)
    ends.push_back(std::move(*(*group)->join(rank)));
  std::vector<std::thread> threads;
  for (auto &end : ends)
    threads.emplace_back([&body, &end] { body(*end); });
  for (std::thread &thread : threads)
    thread.join();
}

SessionOptions with(Communicator &comm) {
  SessionOptions options;
  options.communicator = &comm;
  return options;
}

Result<std::unique_ptr<Session>> open(const PlanPtr &plan, Communicator &comm) {
  SessionOptions options = with(comm);
  options.resolver = testKernel;
  return Session::create(plan, options);
}

std::vector<float> targetsOf(int64_t index) {
  float base = static_cast<float>(index % 7);
  return {base, base + 1, base - 2, 3};
}

TEST(Ranks, AWindowIsTheSumOfAllRanks) {
  TestPlan alone = scalarPlan(batchSize, 2 * perRank, 0.25, 2);
  auto expected = makeSession(alone.read());
  StepResult last;
  for (int64_t k = 0; k < 4; ++k)
    ASSERT_TRUE(expected->step(batchOf(targetsOf(k), 4 * k), last).ok());
  ASSERT_TRUE(last.updated);
  PlanPtr plan = rankPlan(2).read();
  onRanks(2, [&](Communicator &comm) {
    auto session = open(plan, comm);
    ASSERT_TRUE(session.ok()) << session.status().message;
    EXPECT_EQ((*session)->ranks(), 2);
    EXPECT_EQ((*session)->rank(), comm.rank());
    StepResult result;
    for (int64_t k = 2 * comm.rank(); k < 2 * comm.rank() + 2; ++k) {
      EXPECT_FALSE(result.updated);
      ASSERT_TRUE((*session)->step(batchOf(targetsOf(k), 4 * k), result).ok());
    }
    EXPECT_TRUE(result.updated);
    EXPECT_EQ(result.windowLossSum, last.windowLossSum);
    EXPECT_EQ(result.windowLossCount, last.windowLossCount);
    EXPECT_EQ((*session)->samples(), 16);
    EXPECT_EQ(scalarState(**session, "param/w"), scalarState(*expected, "param/w"));
  });
}

TEST(Ranks, ARankWithoutAMicroBatchSharesTheUpdate) {
  TestPlan alone = scalarPlan(batchSize, 2 * perRank, 0.25, 2);
  auto expected = makeSession(alone.read());
  StepResult last;
  ASSERT_TRUE(expected->step(batchOf(targetsOf(0), 0), last).ok());
  ASSERT_TRUE(expected->flush(last).ok());
  PlanPtr plan = rankPlan(3).read();
  onRanks(3, [&](Communicator &comm) {
    auto session = open(plan, comm);
    ASSERT_TRUE(session.ok()) << session.status().message;
    StepResult result;
    if (comm.rank() == 0)
      ASSERT_TRUE((*session)->step(batchOf(targetsOf(0), 0), result).ok());
    ASSERT_TRUE((*session)->flush(result).ok());
    EXPECT_TRUE(result.updated);
    EXPECT_EQ(result.windowLossSum, last.windowLossSum);
    EXPECT_EQ((*session)->samples(), 4);
    EXPECT_EQ(scalarState(**session, "param/w"), scalarState(*expected, "param/w"));
  });
}

TEST(Ranks, ARankThatGivesUpEndsTheStepOnAll) {
  PlanPtr plan = rankPlan(2).read();
  onRanks(2, [&](Communicator &comm) {
    auto session = open(plan, comm);
    ASSERT_TRUE(session.ok());
    if (comm.rank() == 1)
      return comm.abort(Status::damaged("no more data"));
    StepResult result;
    ASSERT_TRUE((*session)->step(batchOf(targetsOf(0), 0), result).ok());
    Status status = (*session)->step(batchOf(targetsOf(1), 4), result);
    EXPECT_EQ(status.code, StatusCode::failed);
    EXPECT_NE(status.message.find("rank 1"), std::string::npos) << status.message;
    EXPECT_NE(status.message.find("no more data"), std::string::npos) << status.message;
    // Half an update is no state to go on from.
    Status again = (*session)->step(batchOf(targetsOf(2), 8), result);
    EXPECT_EQ(again.message, status.message);
    EXPECT_TRUE((*session)->eval(batchOf(targetsOf(2), 8), result).ok());
  });
}

TEST(Ranks, ALateRankIsNamedWithUpdateAndCollective) {
  PlanPtr plan = rankPlan(2).read();
  CommOptions options;
  options.timeout = std::chrono::milliseconds(50);
  onRanks(
      2,
      [&](Communicator &comm) {
        auto session = open(plan, comm);
        ASSERT_TRUE(session.ok()) << session.status().message;
        if (comm.rank() == 1) {
          while (comm.state().ok())
            std::this_thread::yield();
          return;
        }
        StepResult result;
        (void)(*session)->step(batchOf(targetsOf(0), 0), result);
        Status status = (*session)->step(batchOf(targetsOf(1), 4), result);
        EXPECT_EQ(status.code, StatusCode::failed);
        for (const char *part : {"rank 1 of 2", "'grad/w+1'", "update 0"})
          EXPECT_NE(status.message.find(part), std::string::npos) << status.message;
      },
      options);
}

TEST(Ranks, AGroupOfAnotherSizeIsRefused) {
  PlanPtr plan = rankPlan(3).read();
  onRanks(2, [&](Communicator &comm) {
    auto session = open(plan, comm);
    ASSERT_FALSE(session.ok());
    EXPECT_NE(session.status().message.find("for 3 ranks, the communicator has 2"),
              std::string::npos)
        << session.status().message;
  });
  onRanks(2, [&](Communicator &comm) {
    auto session = open(scalarPlan(batchSize, 1, 0.25).read(), comm);
    ASSERT_FALSE(session.ok());
    EXPECT_NE(session.status().message.find("compile with --ranks 2"), std::string::npos);
  });
}

TEST(Ranks, AloneARankEvaluatesButDoesNotTrain) {
  auto session = makeSession(rankPlan(2).read());
  ASSERT_TRUE(session);
  StepResult result;
  EXPECT_TRUE(session->eval(batchOf(targetsOf(0), 0), result).ok());
  Status status = session->step(batchOf(targetsOf(0), 0), result);
  EXPECT_NE(status.message.find("no communicator"), std::string::npos) << status.message;
}

TEST(Ranks, DifferentPlansAreRefusedOnAll) {
  TestPlan other = rankPlan(2);
  other.plan.groups[0]->lr = 0.5;
  PlanPtr plans[] = {rankPlan(2).read(), other.read()};
  onRanks(2, [&](Communicator &comm) {
    auto session = open(plans[comm.rank()], comm);
    ASSERT_FALSE(session.ok());
    EXPECT_NE(session.status().message.find("another plan"), std::string::npos)
        << session.status().message;
  });
}

/// An epoch of 21 samples: five batches of four and one of one. Windows of four
/// micro-batches end with it.
std::vector<float> twentyOne() {
  std::vector<float> values;
  for (int i = 0; i < 21; ++i)
    values.push_back(static_cast<float>((5 * i) % 9));
  return values;
}

TEST(Ranks, TheTrainingLoopDealsOutTheData) {
  auto alone = makeSession(scalarPlan(batchSize, 3 * perRank, 0.25, 2).read());
  FloatSource source(twentyOne(), batchSize);
  TrainOptions options;
  options.epochs = 4;
  auto expected = train(*alone, source, nullptr, options);
  ASSERT_TRUE(expected.ok());
  PlanPtr plan = rankPlan(3).read();
  onRanks(3, [&](Communicator &comm) {
    auto session = open(plan, comm);
    ASSERT_TRUE(session.ok()) << session.status().message;
    FloatSource own(twentyOne(), batchSize);
    auto summary = train(**session, own, nullptr, options);
    ASSERT_TRUE(summary.ok()) << summary.status().message;
    EXPECT_EQ(summary->losses, expected->losses);
    EXPECT_EQ(summary->samples, expected->samples);
    EXPECT_EQ(scalarState(**session, "param/w"), scalarState(*alone, "param/w"));
  });
}

TEST(Ranks, RankZeroEvaluatesAndWritesWhileOthersWait) {
  PlanPtr plan = rankPlan(2).read();
  TemporaryFolder folder;
  int evaluations = 0;
  onRanks(2, [&](Communicator &comm) {
    auto session = open(plan, comm);
    ASSERT_TRUE(session.ok());
    FloatSource source(twentyOne(), batchSize), evalSource(twentyOne(), batchSize);
    TrainOptions options;
    options.steps = 6;
    options.evalEvery = 2;
    options.checkpointEvery = 3;
    options.checkpointFolder = folder.path + "/run";
    bool leads = comm.rank() == 0;
    if (leads)
      options.onEval = [&](const EvalReport &) { ++evaluations; };
    auto summary = train(**session, source, leads ? &evalSource : nullptr, options);
    ASSERT_TRUE(summary.ok()) << summary.status().message;
    EXPECT_EQ(summary->updates, 6);
  });
  EXPECT_EQ(evaluations, 3);
  EXPECT_EQ(listCheckpoints(folder.path + "/run").front(), 6);
  // They go on from it together, and end with what one run of twelve gives.
  float ends[2] = {};
  for (int resumed : {0, 1})
    onRanks(2, [&](Communicator &comm) {
      auto session = open(plan, comm);
      FloatSource source(twentyOne(), batchSize);
      TrainOptions options;
      options.steps = 12;
      options.resume = resumed;
      if (resumed)
        options.checkpointFolder = folder.path + "/run";
      auto summary = train(**session, source, nullptr, options);
      ASSERT_TRUE(summary.ok()) << summary.status().message;
      if (comm.rank() == 0)
        ends[resumed] = scalarState(**session, "param/w");
    });
  EXPECT_EQ(ends[0], ends[1]);
}

TEST(Ranks, CheckpointsThatDifferAreRefusedOnAll) {
  PlanPtr plan = rankPlan(2).read();
  onRanks(2, [&](Communicator &comm) {
    auto session = open(plan, comm);
    ASSERT_TRUE(session.ok());
    if (comm.rank() == 1)
      (*session)->resumeAt(3, 12, 0);
    FloatSource source(twentyOne(), batchSize);
    TrainOptions options;
    options.steps = 2;
    auto summary = train(**session, source, nullptr, options);
    ASSERT_FALSE(summary.ok());
    EXPECT_NE(summary.status().message.find("another state"), std::string::npos)
        << summary.status().message;
  });
}

TEST(Ranks, BadDataOnOneRankEndsTrainingOnAll) {
  PlanPtr plan = rankPlan(2).read();
  onRanks(2, [&](Communicator &comm) {
    auto session = open(plan, comm);
    ASSERT_TRUE(session.ok());
    std::vector<float> values = twentyOne();
    if (comm.rank() == 1)
      values[13] = 0.0f / 0.0f;
    FloatSource source(values, batchSize);
    TrainOptions options;
    options.steps = 8;
    auto summary = train(**session, source, nullptr, options);
    ASSERT_FALSE(summary.ok());
    if (comm.rank() == 0)
      EXPECT_EQ(summary.status().code, StatusCode::failed) << summary.status().message;
  });
}

struct Rule {
  const char *name;
  std::function<void(TestPlan &)> breakIt;
  const char *message;
};

const Rule rules[] = {
    {"NoRanks", [](auto &p) { p.plan.ranks = 0; }, "ranks is 0"},
    {"TooManyRanks", [](auto &p) { p.plan.ranks = 1 << 20; }, "expected 1 to 4096"},
    {"MicroBatches", [](auto &p) { p.plan.accumulate = int64_t(1) << 30; },
     "with several ranks, expected at most"},
    {"RanksInsideRanks",
     [](auto &p) {
       p.plan.as_ranks = 2;
       p.program("close_rank");
     },
     "does not sum as by 2"},
    {"OneRankHasNoCollectives", [](auto &p) { p.plan.ranks = 1; },
     "plans for several ranks"},
    {"Kind",
     [](auto &p) { firstCollective(p).kind = static_cast<fbs::CollectiveKind>(3); },
     "unknown kind or type"},
    {"Type", [](auto &p) { firstCollective(p).dtype = fbs::DType::bf16; },
     "unknown kind or type"},
    {"NoParts", [](auto &p) { firstCollective(p).parts.clear(); }, "no parts"},
    {"Name", [](auto &p) { firstCollective(p).parts[0]->name = ""; }, "has no name"},
    {"Size", [](auto &p) { firstCollective(p).parts[0]->size = 2; },
     "is not made of elements"},
    {"FromOutside",
     [](auto &p) { firstCollective(p).parts[0]->from_offset = UINT64_MAX - 3; },
     "outside its reservation"},
    {"ToOutside", [](auto &p) { firstCollective(p).parts[1]->to_offset = 1 << 20; },
     "outside its reservation"},
    {"Unaligned", [](auto &p) { firstCollective(p).parts[0]->to_offset += 2; },
     "unaligned"},
    {"OnTheHost",
     [](auto &p) { firstCollective(p).parts[0]->to_space = fbs::Space::host_state; },
     "outside its reservation"},
    {"WaitsForALaunchThatNeverSignals",
     [](auto &p) { firstCollective(p).wait_launches = 1; }, "waits for a collective"},
    {"LaunchWaitsForTooMany",
     [](auto &p) { update(p).launches[0]->wait_collectives = 2; },
     "waits for a collective that never ends"},
    {"InEval",
     [](auto &p) {
       for (auto &program : p.plan.programs)
         if (program->name == "eval")
           program->collectives.push_back(
               std::make_unique<fbs::CollectiveT>(firstCollective(p)));
     },
     "belong to 'step' and 'update'"},
    {"NoUpdate",
     [](auto &p) {
       update(p).collectives.clear();
       update(p).launches[0]->wait_collectives = 0;
       update(p).name = "close_rank";
     },
     "only one of 'micro' and 'update'"},
};

class BrokenRanks : public testing::TestWithParam<Rule> {};

TEST_P(BrokenRanks, AreRefused) {
  TestPlan p = rankPlan(2);
  ASSERT_TRUE(PlanReader::readMemory(p.file(), "x.plan").ok());
  GetParam().breakIt(p);
  auto plan = PlanReader::readMemory(p.file(), "x.plan");
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.status().message.find(GetParam().message), std::string::npos)
      << plan.status().message;
}

INSTANTIATE_TEST_SUITE_P(Rules, BrokenRanks, testing::ValuesIn(rules),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace
} // namespace sluice::test
