// Messages of ranks: what becomes one, when it travels, and what waits for it.

#include "passes/planning/CollectiveSchedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace sluice {
namespace {

using Node = CollectiveProblem::Node;

Node launch(double us, std::vector<int32_t> after = {}) {
  return {us, -1, 0, std::move(after)};
}
Node collective(int64_t bytes, std::vector<int32_t> after, int32_t kind = 0) {
  return {0, bytes, kind, std::move(after)};
}

/// A backward part of `layers` launches of 10 us; each gives a gradient of 1000 bytes
/// that is summed and then used by an update of 1 us.
CollectiveProblem backward(int layers) {
  CollectiveProblem problem;
  problem.latencyUs = 1;
  problem.bytesPerUs = 1000;
  problem.bucketBytes = 1000;
  int32_t before = -1;
  for (int layer = 0; layer < layers; ++layer) {
    int32_t at = static_cast<int32_t>(problem.nodes.size());
    problem.nodes.push_back(
        launch(10, before < 0 ? std::vector<int32_t>{} : std::vector<int32_t>{before}));
    problem.nodes.push_back(collective(1000, {at}));
    problem.nodes.push_back(launch(1, {at + 1}));
    before = at;
  }
  return problem;
}

/// Every launch once, after what it needs; every collective in one message, after its
/// producers, and done before its users begin.
void expectValid(const CollectiveProblem &problem, const CollectiveSchedule &schedule) {
  ASSERT_EQ(schedule.error, "");
  size_t count = problem.nodes.size();
  std::vector<int64_t> place(count, -1), message(count, -1);
  for (size_t i = 0; i < schedule.order.size(); ++i) {
    ASSERT_EQ(place[schedule.order[i]], -1);
    place[schedule.order[i]] = static_cast<int64_t>(i);
  }
  double linkFree = 0;
  for (size_t m = 0; m < schedule.messages.size(); ++m) {
    const auto &sent = schedule.messages[m];
    EXPECT_GE(sent.beginUs, linkFree);
    linkFree = sent.endUs;
    for (int32_t node : sent.nodes) {
      ASSERT_EQ(message[node], -1);
      message[node] = static_cast<int64_t>(m);
      EXPECT_EQ(problem.nodes[node].kind, problem.nodes[sent.nodes[0]].kind);
      for (int32_t before : problem.nodes[node].after)
        if (!problem.nodes[before].isCollective())
          EXPECT_LT(place[before], sent.launchesBefore);
    }
  }
  for (size_t i = 0; i < count; ++i) {
    if (problem.nodes[i].isCollective()) {
      EXPECT_GE(message[i], 0);
      continue;
    }
    ASSERT_GE(place[i], 0);
    for (int32_t before : problem.nodes[i].after) {
      if (problem.nodes[before].isCollective())
        EXPECT_LE(schedule.messages[message[before]].launchesBefore, place[i]);
      else
        EXPECT_LT(place[before], place[i]);
    }
  }
}

TEST(CollectiveSchedule, MessagesTravelWhileOtherLaunchesRun) {
  CollectiveProblem problem = backward(10);
  CollectiveSchedule schedule = scheduleCollectives(problem);
  expectValid(problem, schedule);
  EXPECT_EQ(schedule.messages.size(), 10u);
  // All but the last message (2 us) is hidden, and of that one half by an update.
  EXPECT_DOUBLE_EQ(schedule.timeUs, 10 * 10 + 8 * 1 + 2 + 1);
  EXPECT_DOUBLE_EQ(schedule.waitedUs, 1);
}

TEST(CollectiveSchedule, BucketsHoldBytesAndTheRestIsSentAtTheEnd) {
  CollectiveProblem problem = backward(10);
  problem.bucketBytes = 4000;
  CollectiveSchedule schedule = scheduleCollectives(problem);
  expectValid(problem, schedule);
  ASSERT_EQ(schedule.messages.size(), 3u);
  EXPECT_EQ(schedule.messages[0].nodes.size(), 4u);
  EXPECT_EQ(schedule.messages[2].nodes.size(), 2u);
}

TEST(CollectiveSchedule, AWindowOfPredictedTimeSendsEarlier) {
  CollectiveProblem problem = backward(10);
  problem.bucketBytes = 1 << 30;
  problem.windowUs = 15;
  CollectiveSchedule schedule = scheduleCollectives(problem);
  expectValid(problem, schedule);
  EXPECT_GT(schedule.messages.size(), 3u);
}

TEST(CollectiveSchedule, KindsShareNoMessage) {
  CollectiveProblem problem;
  problem.bucketBytes = 1 << 20;
  problem.nodes = {launch(1), collective(8, {0}), collective(8, {0}, 1),
                   launch(1, {1, 2})};
  CollectiveSchedule schedule = scheduleCollectives(problem);
  expectValid(problem, schedule);
  EXPECT_EQ(schedule.messages.size(), 2u);
}

TEST(CollectiveSchedule, NothingIsPutOffWhereNoBytesMayBeHeld) {
  CollectiveProblem problem = backward(10);
  problem.heldBytes = 0;
  CollectiveSchedule schedule = scheduleCollectives(problem);
  expectValid(problem, schedule);
  EXPECT_TRUE(std::is_sorted(schedule.order.begin(), schedule.order.end()));
  EXPECT_DOUBLE_EQ(schedule.timeUs, 10 * (10 + 2 + 1));
}

TEST(CollectiveSchedule, OneProgramTakesTheMessagesOfAnother) {
  CollectiveProblem problem;
  problem.bucketBytes = 1;
  problem.nodes = {launch(1), collective(8, {0}), collective(8, {0}), collective(8, {0}),
                   launch(1, {1, 2, 3})};
  problem.given = {{3, 1}, {2}};
  CollectiveSchedule schedule = scheduleCollectives(problem);
  expectValid(problem, schedule);
  ASSERT_EQ(schedule.messages.size(), 2u);
  EXPECT_EQ(schedule.messages[0].nodes, (std::vector<int32_t>{3, 1}));
  EXPECT_EQ(schedule.messages[1].nodes, (std::vector<int32_t>{2}));
}

TEST(CollectiveSchedule, OfAnothersMessagesOneIsHeldAtATime) {
  // Gradients of nothing, in an order that is not that of the messages.
  CollectiveProblem problem;
  problem.heldBytes = 0;
  problem.latencyUs = 1;
  for (int32_t i = 0; i < 8; ++i) {
    problem.nodes.push_back(launch(1));
    problem.nodes.push_back(collective(100, {3 * i}));
    problem.nodes.push_back(launch(1, {3 * i + 1}));
  }
  for (int32_t m = 3; m >= 0; --m)
    problem.given.push_back({3 * m + 1, 3 * (m + 4) + 1});
  CollectiveSchedule schedule = scheduleCollectives(problem);
  expectValid(problem, schedule);
  ASSERT_EQ(schedule.messages.size(), 4u);
  // Two launches for each message and two behind it, of which one may still be to come.
  for (size_t m = 0; m < 4; ++m)
    EXPECT_GE(schedule.messages[m].launchesBefore, static_cast<int64_t>(3 * m + 2));
}

TEST(CollectiveSchedule, MessagesThatWaitForEachOtherAreAnError) {
  CollectiveProblem problem;
  problem.nodes = {launch(1), collective(8, {0}), launch(1, {1}), collective(8, {2})};
  problem.given = {{1, 3}};
  EXPECT_NE(scheduleCollectives(problem).error, "");
}

/// The messages of `backward` with layers in groups of `each`.
CollectiveProblem grouped(int layers, int32_t each) {
  CollectiveProblem problem = backward(layers);
  for (size_t i = 0; i < problem.nodes.size(); ++i)
    if (problem.nodes[i].isCollective())
      problem.nodes[i].group = static_cast<int32_t>(i) / 3 / each;
  return problem;
}

TEST(CollectiveSchedule, AGroupIsAMessageThatIsSentWhenItIsComplete) {
  for (int64_t bucket : {1, 1 << 30}) {
    CollectiveProblem problem = grouped(12, 4);
    problem.bucketBytes = bucket;
    CollectiveSchedule schedule = scheduleCollectives(problem);
    expectValid(problem, schedule);
    ASSERT_EQ(schedule.messages.size(), 3u);
    for (const auto &message : schedule.messages)
      EXPECT_EQ(message.nodes.size(), 4u);
    EXPECT_DOUBLE_EQ(schedule.messages[0].beginUs, 40); // four layers
  }
}

TEST(CollectiveSchedule, GroupsMayMixAndOthersGoBeside) {
  CollectiveProblem problem = grouped(8, 1);
  for (size_t i = 0; i < problem.nodes.size(); ++i)
    if (problem.nodes[i].isCollective()) // 0, 1, none, 0, 1, none, 0, 1
      problem.nodes[i].group = static_cast<int32_t>((i / 3 + 1) % 3) - 1;
  problem.bucketBytes = 1 << 30;
  CollectiveSchedule schedule = scheduleCollectives(problem);
  expectValid(problem, schedule);
  EXPECT_EQ(schedule.messages.size(), 3u);
}

TEST(CollectiveSchedule, PartsOfAGroupGoWhereTheRestWaitsForThem) {
  CollectiveProblem problem;
  problem.nodes = {launch(1), collective(8, {0}), launch(1, {1}), collective(8, {2})};
  problem.nodes[1].group = problem.nodes[3].group = 0;
  CollectiveSchedule schedule = scheduleCollectives(problem);
  expectValid(problem, schedule);
  EXPECT_EQ(schedule.messages.size(), 2u);
}

TEST(CollectiveSchedule, WorkOfTheHostTakesTimeFromLaunchesButNotFromWaits) {
  CollectiveProblem problem = backward(2);
  problem.host = {3, 0};
  problem.bucketBytes = 1 << 20; // one message, behind all: 2000 bytes in 3 us
  EXPECT_DOUBLE_EQ(scheduleCollectives(problem).timeUs, 20 + 3 + 2);
  problem.bucketBytes = 1; // the first beside the second launch: 3 us more of that
  CollectiveSchedule schedule = scheduleCollectives(problem);
  EXPECT_DOUBLE_EQ(schedule.messages[1].beginUs, 23);
}

TEST(CollectiveSchedule, TheBucketIsNeverWorseThanOneMessage) {
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    CollectiveProblem problem = backward(2 + static_cast<int>(random() % 12));
    problem.latencyUs = random() % 30;
    problem.bytesPerUs = 1 + random() % 400;
    problem.host = {double(random() % 20), 0.001 * double(random() % 20)};
    problem.bucketBytes = 1 + random() % 3000;
    problem.bucketBytes = fastestBucket(problem);
    double chosen = scheduleCollectives(problem).timeUs;
    problem.bucketBytes = 1 << 30;
    EXPECT_LE(chosen, scheduleCollectives(problem).timeUs);
  }
}

TEST(CollectiveSchedule, LatencyIsATwentiethOfABucket) {
  EXPECT_EQ(bucketBytesOf(20, 200e3), 76000000);
}

TEST(CollectiveSchedule, ABucketIsAsSmallAsPays) {
  // Eight gradients of 1000 bytes, 10 us of backward part each, at 200 bytes a us: one
  // message of 40 us shows behind it, small ones do not but for their latency.
  CollectiveProblem problem = backward(8);
  problem.bytesPerUs = 200;
  problem.bucketBytes = 1 << 20;
  double whole = scheduleCollectives(problem).timeUs;
  for (double latency : {0.5, 2.0, 20.0, 200.0}) {
    problem.latencyUs = latency;
    problem.bucketBytes = 1 << 20;
    problem.bucketBytes = fastestBucket(problem);
    double chosen = scheduleCollectives(problem).timeUs;
    for (int64_t bytes : {1 << 20, 4000, 2000, 1000, 500, 125}) {
      problem.bucketBytes = bytes;
      EXPECT_LE(chosen, scheduleCollectives(problem).timeUs) << latency << " " << bytes;
    }
    if (latency == 0.5) {
      EXPECT_LT(chosen, whole - 20);
    }
  }
}

TEST(CollectiveSchedule, RandomStepsAreValidAndNeverSlowerThanWaitingAtOnce) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    CollectiveProblem problem;
    problem.latencyUs = 1 + random() % 5;
    problem.bytesPerUs = 1 + random() % 1000;
    problem.bucketBytes = 1 + random() % 4000;
    int32_t count = 2 + static_cast<int32_t>(random() % 40);
    for (int32_t i = 0; i < count; ++i) {
      std::vector<int32_t> after;
      for (int32_t j = 0; j < i; ++j)
        if (random() % 6 == 0)
          after.push_back(j);
      bool isCollective = i > 0 && random() % 3 == 0;
      problem.nodes.push_back(isCollective ? collective(1 + random() % 3000, after)
                                           : launch(1 + random() % 20, after));
    }
    CollectiveSchedule schedule = scheduleCollectives(problem);
    expectValid(problem, schedule);
    double launches = 0, sent = 0;
    for (const Node &node : problem.nodes)
      launches += node.us;
    for (const auto &message : schedule.messages)
      sent += message.endUs - message.beginUs;
    EXPECT_GE(schedule.timeUs, launches - 1e-9);
    EXPECT_LE(schedule.timeUs, launches + sent + 1e-9);
  }
}

TEST(CollectiveSchedule, EachKindHasItsOwnPrice) {
  LinkTopology links;
  links.within = {1e9, 10}; // 1000 bytes a microsecond
  CollectiveProblem problem;
  problem.nodes = {launch(5), collective(4000, {0}, 0), collective(4000, {0}, 1)};
  problem.bucketBytes = 1;
  problem.ways = {{ringCost(CollectiveKind::AllReduce, 4, links.within)},
                  {ringCost(CollectiveKind::ReduceScatter, 4, links.within)}};
  CollectiveSchedule schedule = scheduleCollectives(problem);
  expectValid(problem, schedule);
  ASSERT_EQ(schedule.messages.size(), 2u);
  auto timeOf = [&](size_t m) {
    return schedule.messages[m].endUs - schedule.messages[m].beginUs;
  };
  EXPECT_DOUBLE_EQ(timeOf(0), 2 * 3 * 10 + 2 * 0.75 * 4);
  EXPECT_DOUBLE_EQ(timeOf(1), 3 * 10 + 0.75 * 4);
}

} // namespace
} // namespace sluice
