// Costs of collectives against their closed forms and against messages that are played
// through hop by hop; steps on other links; the link that is enough.

#include "passes/planning/CollectiveReplay.h"
#include "passes/planning/CollectiveSchedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace sluice {
namespace {

using Kind = CollectiveKind;
constexpr double microsecond = 1e-6; // in seconds

/// A ring in which every rank, in each round, sends a part to the next and may begin when
/// it has what it got in the round before.
double playedRing(int64_t ranks, double bytes, const Link &link, int64_t rounds) {
  std::vector<double> ready(static_cast<size_t>(ranks), 0);
  double hop = link.latencyUs + bytes / double(ranks) / link.bytesPerSecond / microsecond;
  for (int64_t round = 0; round < rounds; ++round) {
    std::vector<double> next = ready;
    for (size_t rank = 0; rank < ready.size(); ++rank) {
      size_t to = (rank + 1) % ready.size();
      next[to] = std::max(ready[rank], ready[to]) + hop;
    }
    ready = next;
  }
  return *std::max_element(ready.begin(), ready.end());
}

TEST(LinkModel, ARingTakesWhatItsHopsTake) {
  Link link{255e9, 10};
  for (int64_t ranks : {2, 3, 4, 8, 64})
    for (int64_t bytes : {int64_t{4}, int64_t{1} << 20, int64_t{1} << 32}) {
      double all = playedRing(ranks, double(bytes), link, 2 * (ranks - 1));
      EXPECT_NEAR(ringCost(Kind::AllReduce, ranks, link).us(bytes), all, 1e-9 * all);
      double half = playedRing(ranks, double(bytes), link, ranks - 1);
      for (Kind kind : {Kind::ReduceScatter, Kind::AllGather})
        EXPECT_NEAR(ringCost(kind, ranks, link).us(bytes), half, 1e-9 * half);
    }
}

TEST(LinkModel, ClosedForms) {
  Link link{1e9, 7}; // 1000 bytes in a microsecond
  EXPECT_DOUBLE_EQ(ringCost(Kind::AllReduce, 4, link).us(1000000), 2 * 3 * 7 + 1500);
  EXPECT_DOUBLE_EQ(treeCost(8, link).us(1000000), 2 * 3 * 7 + 2000);
  EXPECT_DOUBLE_EQ(treeCost(5, link).us(0), 2 * 3 * 7);
  EXPECT_DOUBLE_EQ(exchangeCost(Kind::AllReduce, 4, link, 3).us(1000000), 3 * 7 + 1500);
  EXPECT_DOUBLE_EQ(exchangeCost(Kind::AllGather, 4, link, 3).us(1000000), 2 * 7 + 750);
  // 4 nodes of 8: 7 rounds each way inside, then an eighth of the bytes among 4.
  LinkTopology links{{1e9, 1}, 8, {1e8, 20}, 0};
  double inside = 2 * (7 * 1 + 7.0 / 8 * 1e6 / 1e3);
  double ring = 2 * (3 * 20 + 3.0 / 4 * (1e6 / 8) / 1e2);
  double tree = 2 * 2 * 20 + 2 * (1e6 / 8) / 1e2;
  EXPECT_DOUBLE_EQ(hierarchicalCost(Kind::AllReduce, 32, links, true).us(1000000),
                   inside + ring);
  EXPECT_DOUBLE_EQ(hierarchicalCost(Kind::AllReduce, 32, links, false).us(1000000),
                   inside + tree);
  EXPECT_DOUBLE_EQ(hierarchicalCost(Kind::ReduceScatter, 32, links, true).us(1000000),
                   (inside + ring) / 2);
}

TEST(LinkModel, ShortMessagesGoByTreeAndLongOnesByRing) {
  LinkTopology links{{255e9, 10}, 0, {}, 0};
  auto ways = collectiveWays(Kind::AllReduce, 64, links);
  EXPECT_EQ(fastestWay(ways, 1024).way, CollectiveWay::Tree);
  EXPECT_EQ(fastestWay(ways, int64_t{16} << 30).way, CollectiveWay::Ring);
  EXPECT_EQ(fastestWay(collectiveWays(Kind::AllGather, 64, links), 1024).way,
            CollectiveWay::Ring);
  EXPECT_EQ(collectiveWays(Kind::AllReduce, 1, links).front().us(1 << 20), 0);
}

TEST(LinkModel, NodesAreCrossedOnceForEachPart) {
  LinkTopology links{{255e9, 10}, 8, {21e9, 15}, 0};
  EXPECT_FALSE(spansNodes(8, links));
  EXPECT_TRUE(spansNodes(16, links));
  auto inside = collectiveWays(Kind::AllReduce, 8, links);
  EXPECT_EQ(fastestWay(inside, 1 << 30).usPerByte,
            ringCost(Kind::AllReduce, 8, links.within).usPerByte);
  auto ways = collectiveWays(Kind::AllReduce, 16, links);
  EXPECT_EQ(fastestWay(ways, 1 << 30).way, CollectiveWay::Hierarchical);
  // Where nodes are not full, a ring over all at the slower link.
  auto uneven = collectiveWays(Kind::AllReduce, 12, links);
  EXPECT_EQ(fastestWay(uneven, 1 << 30).way, CollectiveWay::Ring);
  EXPECT_DOUBLE_EQ(fastestWay(uneven, 1 << 30).us(1 << 30),
                   ringCost(Kind::AllReduce, 12, links.between).us(1 << 30));
}

/// A backward part of `layers` launches of 100 us, whose gradients of 1 MB are sent as
/// soon as they are there, and updates of 10 us in their order.
CollectiveTimeline backward(int layers) {
  CollectiveTimeline timeline;
  for (int i = 0; i < layers; ++i) {
    timeline.launches.push_back({100, 0});
    timeline.messages.push_back({1000000, i + 1, Kind::AllReduce});
  }
  for (int i = 0; i < layers; ++i)
    timeline.launches.push_back({10, i + 1});
  return timeline;
}

TEST(CollectiveReplay, OnlyTheLastMessageShowsOnAFastLink) {
  LinkTopology links{{20e9, 5}, 0, {}, 0}; // 2 ranks: 10 + 50 us
  CollectiveTimes times = replay(backward(4), 2, links);
  // The last message begins at 400 us; the updates before its own take 30 of its 60 us.
  EXPECT_DOUBLE_EQ(times.linkUs, 4 * 60);
  EXPECT_DOUBLE_EQ(times.waitedUs, 30);
  EXPECT_DOUBLE_EQ(times.us, 440 + 30);
}

TEST(CollectiveReplay, ASlowLinkIsWhatCounts) {
  LinkTopology links{{1e9, 0}, 0, {}, 0}; // 1000 us a message
  CollectiveTimes times = replay(backward(4), 2, links);
  EXPECT_DOUBLE_EQ(times.us, 100 + 4 * 1000 + 10);
  EXPECT_DOUBLE_EQ(times.waitedUs, times.us - 440);
}

TEST(CollectiveReplay, AStepTakesAsLongAsItsScheduleSays) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    LinkTopology links{{1e9, double(random() % 50)}, 0, {}, 0};
    CollectiveProblem problem;
    problem.ways = {collectiveWays(Kind::AllReduce, 4, links)};
    problem.bucketBytes = 1 + random() % 300000;
    for (int32_t i = 0; i < 12; ++i) {
      int32_t at = static_cast<int32_t>(problem.nodes.size());
      std::vector<int32_t> before =
          i ? std::vector<int32_t>{at - 3} : std::vector<int32_t>{};
      problem.nodes.push_back({double(random() % 300), -1, 0, before});
      problem.nodes.push_back({0, int64_t(random() % 200000), 0, {at}});
      problem.nodes.push_back({double(random() % 20), -1, 0, {at + 1}});
    }
    CollectiveSchedule schedule = scheduleCollectives(problem);
    ASSERT_EQ(schedule.error, "");
    CollectiveTimeline timeline;
    std::vector<int64_t> messageOf(problem.nodes.size());
    for (size_t m = 0; m < schedule.messages.size(); ++m) {
      const auto &sent = schedule.messages[m];
      int64_t bytes = 0;
      for (int32_t node : sent.nodes) {
        bytes += problem.nodes[size_t(node)].bytes;
        messageOf[size_t(node)] = int64_t(m) + 1;
      }
      timeline.messages.push_back({bytes, sent.launchesBefore, Kind::AllReduce});
    }
    for (int32_t node : schedule.order) {
      const auto &launch = problem.nodes[size_t(node)];
      int64_t waits = 0;
      for (int32_t before : launch.after)
        waits = std::max(waits, messageOf[size_t(before)]);
      timeline.launches.push_back({launch.us, waits});
    }
    EXPECT_NEAR(replay(timeline, 4, links).us, schedule.timeUs, 1e-6);
    EXPECT_NEAR(replay(timeline, 4, links).waitedUs, schedule.waitedUs, 1e-6);
  }
}

TEST(EnoughLink, IsTheLeastThatKeepsTheWaitBelowTheShare) {
  LinkTopology links{{1e9, 2}, 0, {}, 0};
  std::vector<CollectiveTimeline> step = {backward(10)};
  EnoughLink found = enoughLink(step, 4, links, 0.05);
  EXPECT_FALSE(found.isThere);
  EXPECT_FALSE(found.needsLatency);
  EXPECT_FALSE(found.between);
  for (double factor : {1.0, 0.999}) {
    links.within.bytesPerSecond = found.link.bytesPerSecond * factor;
    CollectiveTimes times = replay(step, 4, links);
    EXPECT_EQ(times.waitedUs <= 0.05 * times.us, factor == 1.0) << factor;
  }
  links.within.bytesPerSecond *= 10;
  EXPECT_TRUE(enoughLink(step, 4, links, 0.05).isThere);
}

TEST(EnoughLink, BetweenNodesWhereThereAreSeveral) {
  LinkTopology links{{255e9, 1}, 4, {1e8, 5}, 0};
  std::vector<CollectiveTimeline> step = {backward(10)};
  EnoughLink found = enoughLink(step, 8, links, 0.05);
  EXPECT_TRUE(found.between);
  EXPECT_GT(found.link.bytesPerSecond, 1e8);
  links.between = found.link;
  EXPECT_TRUE(enoughLink(step, 8, links, 0.05).isThere);
}

TEST(EnoughLink, NoneWhereTheLinksWithinANodeAreTooSlow) {
  LinkTopology links{{1e8, 1}, 4, {1e8, 5}, 0};
  EnoughLink found = enoughLink({backward(10)}, 8, links, 0.05);
  EXPECT_TRUE(found.between);
  EXPECT_TRUE(found.isNone);
}

TEST(EnoughLink, NoRateHelpsAgainstLatency) {
  LinkTopology links{{1e9, 5000}, 0, {}, 0};
  std::vector<CollectiveTimeline> step = {backward(10)};
  EnoughLink found = enoughLink(step, 2, links, 0.05);
  EXPECT_TRUE(found.needsLatency);
  EXPECT_FALSE(found.isNone);
  EXPECT_LT(found.link.latencyUs, 5000);
  links.within = found.link;
  if (std::isinf(found.link.bytesPerSecond))
    links.within.bytesPerSecond = 1e18;
  EXPECT_TRUE(enoughLink(step, 2, links, 0.05).isThere);
}

} // namespace
} // namespace sluice
