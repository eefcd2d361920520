#include "passes/planning/CopySchedule.h"
#include "passes/planning/CopyScheduleChecker.h"

#include <gtest/gtest.h>

#include <random>

namespace sluice {
namespace {

/// Copies of 1000 bytes take 10 us.
StreamProblem steps(int launches, double us = 10) {
  StreamProblem problem;
  problem.launchUs.assign(size_t(launches), us);
  problem.link = {1000 / 10e-6, 0};
  return problem;
}

TEST(CopySchedule, NothingMovesWithoutAnOffloadedTensor) {
  StreamProblem problem = steps(4);
  problem.tensors.push_back({1000, false, false, false, {{0, true}, {3, false}}});
  StreamSchedule schedule = scheduleCopies(problem);
  EXPECT_TRUE(schedule.copies.empty());
  EXPECT_EQ(schedule.timeUs, 40);
}

TEST(CopySchedule, ValueLeavesAndComesBackWithoutKeepingALaunchWaiting) {
  StreamProblem problem = steps(8);
  problem.tensors.push_back(
      {1000, false, true, false, {{0, true}, {1, false}, {7, false}}});
  StreamSchedule schedule = scheduleCopies(problem);
  EXPECT_EQ(checkCopySchedule(problem, schedule), "");
  ASSERT_EQ(schedule.copies.size(), 2u);
  EXPECT_TRUE(schedule.copies[0].toHost);
  EXPECT_EQ(schedule.copies[0].waitLaunches, 2); // as soon as launch 1 is done
  EXPECT_EQ(schedule.copies[1].waitLaunches, 6); // just in time for launch 7
  EXPECT_EQ(schedule.timeUs, 80);
  ASSERT_EQ(schedule.parts.size(), 2u);
  EXPECT_EQ(schedule.parts[0].end, 2);   // the copy runs beside launch 2
  EXPECT_EQ(schedule.parts[1].begin, 6); // and back beside launch 6
}

TEST(CopySchedule, StateComesBeforeAndLeavesBehind) {
  StreamProblem problem = steps(3);
  problem.tensors.push_back({1000, true, true, false, {{2, true}}});
  StreamSchedule schedule = scheduleCopies(problem);
  EXPECT_EQ(checkCopySchedule(problem, schedule), "");
  ASSERT_EQ(schedule.copies.size(), 2u);
  EXPECT_EQ(schedule.timeUs, 40); // nothing runs beside the copy back
}

TEST(CopySchedule, StateThatIsOnlyReadDoesNotGoBack) {
  StreamProblem problem = steps(12);
  problem.tensors.push_back({1000, true, true, false, {{1, false}, {10, false}}});
  StreamSchedule schedule = scheduleCopies(problem);
  EXPECT_EQ(checkCopySchedule(problem, schedule), "");
  ASSERT_EQ(schedule.copies.size(), 2u);
  EXPECT_FALSE(schedule.copies[0].toHost);
  EXPECT_FALSE(schedule.copies[1].toHost);
  EXPECT_EQ(schedule.timeUs, 120);
}

TEST(CopySchedule, LaunchWaitsWhereTheLinkIsTooSlow) {
  StreamProblem problem = steps(4);
  problem.tensors.push_back({10000, false, true, false, {{0, true}, {3, false}}});
  StreamSchedule schedule = scheduleCopies(problem);
  EXPECT_EQ(checkCopySchedule(problem, schedule), "");
  EXPECT_DOUBLE_EQ(schedule.timeUs, 10 + 100 + 100 + 10);
}

TEST(CopySchedule, LaunchesWaitForWhatLeavesAtOnce) {
  StreamProblem problem = steps(6);
  problem.tensors.push_back(
      {1000, false, true, true, {{0, true}, {2, false}, {5, false}}});
  StreamSchedule schedule = scheduleCopies(problem);
  EXPECT_EQ(checkCopySchedule(problem, schedule), "");
  ASSERT_EQ(schedule.parts.size(), 3u);
  for (const StreamSchedule::Part &part : schedule.parts) {
    EXPECT_EQ(part.begin, part.first);
    EXPECT_EQ(part.end, part.last);
  }
  EXPECT_DOUBLE_EQ(schedule.timeUs, 60 + 3 * 10); // it comes back twice, unchanged
}

TEST(CopySchedule, RandomProgramsPassTheChecker) {
  std::mt19937 random(1);
  auto below = [&](int n) { return int32_t(random() % uint32_t(n)); };
  for (int round = 0; round < 300; ++round) {
    StreamProblem problem = steps(1 + below(30), 1 + below(20));
    problem.link.latencyUs = below(3);
    int count = below(12);
    for (int t = 0; t < count; ++t) {
      StreamProblem::Tensor tensor;
      tensor.sizeBytes = 64 * below(60);
      tensor.isState = below(2);
      tensor.offloaded = below(4) > 0;
      tensor.atOnce = below(3) == 0;
      for (int32_t l = 0; l < int32_t(problem.launchUs.size()); ++l)
        if (below(5) == 0)
          tensor.accesses.push_back({l, below(3) == 0});
      problem.tensors.push_back(tensor);
    }
    StreamSchedule schedule = scheduleCopies(problem);
    ASSERT_EQ(checkCopySchedule(problem, schedule), "") << "round " << round;
    double sum = 0;
    for (double us : problem.launchUs)
      sum += us;
    EXPECT_GE(schedule.timeUs, sum);
    EXPECT_LE(schedule.timeUs, sum + schedule.linkUs + 1e-6);
  }
}

/// A correct schedule and one that is broken in a single place.
TEST(CopyScheduleChecker, SeesWhatIsWrong) {
  StreamProblem problem = steps(8);
  problem.tensors.push_back({1000, false, true, false, {{0, true}, {7, false}}});
  StreamSchedule good = scheduleCopies(problem);
  ASSERT_EQ(checkCopySchedule(problem, good), "");
  StreamSchedule bad = good;
  bad.waitCopies.assign(8, 0);
  EXPECT_NE(checkCopySchedule(problem, bad), "");
  bad = good;
  bad.copies[0].waitLaunches = 0;
  EXPECT_NE(checkCopySchedule(problem, bad), "");
  bad = good;
  bad.copies[1].waitLaunches = 8;
  EXPECT_NE(checkCopySchedule(problem, bad), "");
  bad = good;
  bad.parts[1].begin = 7;
  EXPECT_NE(checkCopySchedule(problem, bad), "");
  bad = good;
  bad.parts[0].last = 3; // hides no use, but leaves out the way back
  bad.parts.pop_back();
  EXPECT_NE(checkCopySchedule(problem, bad), "");
  bad = good;
  bad.timeUs += 1;
  EXPECT_NE(checkCopySchedule(problem, bad), "");
}

} // namespace
} // namespace sluice
