// When queues are predicted to run, and what of one lies beside another.

#include "runtime/Timeline.h"

#include <gtest/gtest.h>

namespace sluice::test {
namespace {

/// Launches of 10, 10 and 10 us; a copy of 15 us behind the first, which the third waits
/// for; a collective of 8 us behind the second.
fbs::ProgramT threeLaunches() {
  fbs::ProgramT program;
  program.name = "step";
  for (int i = 0; i < 3; ++i) {
    auto launch = std::make_unique<fbs::LaunchT>();
    launch->predicted_us = 10;
    program.launches.push_back(std::move(launch));
  }
  program.launches[2]->wait_copies = 1;
  auto copy = std::make_unique<fbs::CopyT>();
  copy->wait_launches = 1;
  copy->predicted_us = 15;
  program.copies.push_back(std::move(copy));
  auto collective = std::make_unique<fbs::CollectiveT>();
  collective->wait_launches = 2;
  collective->predicted_us = 8;
  program.collectives.push_back(std::move(collective));
  return program;
}

TEST(Timeline, RunsQueuesBesideEachOther) {
  fbs::ProgramT program = threeLaunches();
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(fbs::Program::Pack(builder, &program));
  auto events =
      plannedTimeline(*flatbuffers::GetRoot<fbs::Program>(builder.GetBufferPointer()));
  ASSERT_EQ(events.size(), 5u);
  double begins[] = {0, 10, 25, 10, 20}, ends[] = {10, 20, 35, 25, 28};
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].beginUs, begins[i]) << i;
    EXPECT_EQ(events[i].endUs, ends[i]) << i;
  }
  EXPECT_EQ(events[3].queue, Queue::copies);
  EXPECT_EQ(events[4].queue, Queue::collectives);
}

TEST(Timeline, OverlapIsAShareOfTheInnerTime) {
  EXPECT_DOUBLE_EQ(overlapShare({{10, 25}}, {{0, 10}, {10, 20}, {25, 35}}), 10.0 / 15);
  EXPECT_DOUBLE_EQ(overlapShare({{0, 4}, {2, 6}}, {{5, 20}}), 1.0 / 6);
  EXPECT_EQ(overlapShare({}, {{0, 1}}), 0);
  EXPECT_EQ(overlapShare({{0, 1}}, {}), 0);
}

} // namespace
} // namespace sluice::test
