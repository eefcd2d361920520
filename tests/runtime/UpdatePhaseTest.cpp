// Which groups a step updates and what a flush applies; plans that cannot be are refused.

#include "runtime/UpdatePhase.h"
#include "tests/runtime/TestPlan.h"

#include <gtest/gtest.h>

namespace sluice::test {
namespace {

fbs::ProgramT &programOf(TestPlan &p, std::string_view name) {
  for (auto &program : p.plan.programs)
    if (program->name == name)
      return *program;
  throw std::runtime_error("no such program");
}

/// The scalar plan of two micro-batches as one whose only group has every second turn.
TestPlan turnsPlan() {
  TestPlan p = scalarPlan(2, 2, 0.25);
  p.plan.accumulate = 1;
  p.plan.update_every = 2;
  for (auto &group : p.plan.groups)
    group->every = 2, group->phase = 1;
  p.state("window/waiting", DType::i64, {}, fbs::Role::pending);
  auto again = std::make_unique<fbs::ProgramT>(programOf(p, "update"));
  programOf(p, "update").name = "update.0";
  again->name = "update.1";
  p.plan.programs.push_back(std::move(again));
  return p;
}

struct Rule {
  const char *name;
  void (*breakIt)(TestPlan &);
  const char *message;
};

const Rule rules[] = {
    {"NoTurn", [](auto &p) { p.plan.update_every = 0; }, "turns of 0 steps"},
    {"Phase", [](auto &p) { p.plan.groups[0]->phase = 2; }, "has no turn of 2 steps"},
    {"Every", [](auto &p) { p.plan.groups[0]->every = 3; }, "has no turn of 2 steps"},
    {"Delay", [](auto &p) { p.plan.groups[0]->delay = -1; }, "waits for -1"},
    {"MissingTurn", [](auto &p) { programOf(p, "update.1").name = "update.2"; },
     "program 'update.1' is missing"},
    {"TurnTooMany",
     [](auto &p) {
       auto more = std::make_unique<fbs::ProgramT>(programOf(p, "update.1"));
       more->name = "update.2";
       p.plan.programs.push_back(std::move(more));
     },
     "do not go with groups that take turns"},
    {"UncountedWait", [](auto &p) { p.tensor("window/waiting").name = "other"; },
     "without the state 'window/waiting'"},
    {"CountedByAFloat",
     [](auto &p) { p.tensor("window/waiting").dtype = fbs::DType::f64; },
     "has to be one i64"},
    {"Version",
     [](auto &p) {
       auto row = std::make_unique<fbs::VersionRowT>();
       row->group = "a", row->read = -1;
       p.plan.versions.push_back(std::move(row));
     },
     "row 0 of its versions is out of range"},
};

class BrokenTurns : public testing::TestWithParam<Rule> {};

TEST_P(BrokenTurns, AreRefused) {
  TestPlan p = turnsPlan();
  auto whole = PlanReader::readMemory(p.file(), "x.plan");
  ASSERT_TRUE(whole.ok()) << whole.status().message;
  GetParam().breakIt(p);
  auto plan = PlanReader::readMemory(p.file(), "x.plan");
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.status().message.find(GetParam().message), std::string::npos)
      << plan.status().message;
}

INSTANTIATE_TEST_SUITE_P(Rules, BrokenTurns, testing::ValuesIn(rules),
                         [](const auto &info) { return std::string(info.param.name); });

/// Groups as a plan has them, in a buffer of their own.
class Phases : public testing::Test {
protected:
  const fbs::Plan &planOf(std::vector<std::array<int64_t, 3>> groups) {
    fbs::PlanT plan;
    for (auto [every, phase, delay] : groups) {
      auto group = std::make_unique<fbs::ParamGroupT>();
      group->name = std::to_string(plan.groups.size());
      group->every = every, group->phase = phase, group->delay = delay;
      plan.update_every = std::max(plan.update_every, every);
      plan.groups.push_back(std::move(group));
    }
    builder.Finish(fbs::Plan::Pack(builder, &plan));
    return *flatbuffers::GetRoot<fbs::Plan>(builder.GetBufferPointer());
  }
  flatbuffers::FlatBufferBuilder builder;
  int64_t waiting = 0;
};

TEST_F(Phases, DeferredGroupsWaitUntilTheirFirstGradientComesOut) {
  const fbs::Plan &plan = planOf({{1, 0, 2}, {1, 0, 0}});
  UpdatePhase phase(plan, &waiting);
  std::string turns;
  for (int64_t step = 0; step < 4; ++step, phase.count())
    turns += phase.applies(*plan.groups()->Get(0), step) ? '1' : '0';
  EXPECT_EQ(turns, "0011");
  EXPECT_TRUE(phase.applies(*plan.groups()->Get(1), 0));
  EXPECT_EQ(phase.rounds(), 2);
  EXPECT_TRUE(phase.appliesInRound(*plan.groups()->Get(0), 4, 1));
  EXPECT_FALSE(phase.appliesInRound(*plan.groups()->Get(1), 4, 0)); // has none waiting
  phase.flushed();
  EXPECT_FALSE(phase.hasWaiting());
  EXPECT_FALSE(phase.applies(*plan.groups()->Get(0), 4)); // the ring fills up again
}

TEST_F(Phases, AFlushReachesEveryGroupButTheOneThatJustHadItsTurn) {
  const fbs::Plan &plan = planOf({{3, 0, 0}, {3, 1, 0}, {3, 2, 0}});
  UpdatePhase phase(plan, &waiting);
  phase.count(); // step 0: group 0
  ASSERT_EQ(phase.rounds(), 2);
  std::string reached;
  for (int64_t round = 0; round < 2; ++round)
    for (uint32_t group = 0; group < 3; ++group)
      if (phase.appliesInRound(*plan.groups()->Get(group), 1, round))
        reached += std::to_string(group);
  EXPECT_EQ(reached, "12");
}

} // namespace
} // namespace sluice::test
