// Ranks that are late, gone, or somewhere else.

#include "tests/comm/Ranks.h"

#include <atomic>

namespace sluice::test {

using std::chrono::milliseconds;

static Status allReduce(Communicator &comm, size_t count, const CallLabel &label) {
  std::vector<float> values(count, 1);
  std::vector<Part> parts = cut(values, 2);
  return comm.allReduce(parts, SumType::f32, label);
}

TEST(LocalFailure, AMissingRankIsNamed) {
  auto ends = joinAll(2, {milliseconds(20)});
  Status status = allReduce(*ends[0], 8, {"step", 41, "grad/fc1.weight+3"});
  EXPECT_EQ(status.code, StatusCode::failed);
  EXPECT_EQ(status.message, "rank 1 of 2 did not arrive at all_reduce "
                            "'grad/fc1.weight+3' (program 'step', update 41) within "
                            "20 ms");
}

TEST(LocalFailure, AMissingRankIsNamedOnAllThatWait) {
  auto ends = joinAll(4, {milliseconds(50)});
  onEach(ends, [&](Communicator &comm) {
    if (comm.rank() == 2)
      return;
    Status status = allReduce(comm, 8, {"step", 41, "grad/w"});
    EXPECT_EQ(status.code, StatusCode::failed);
    expectNamed(status, 2, 4);
  });
  // The late one learns why no one waits any more, and so does whoever calls again.
  for (auto &end : ends)
    EXPECT_EQ(allReduce(*end, 8, {"step", 41, "grad/w"}).message, end->state().message);
  EXPECT_EQ(ends[2]->state().code, StatusCode::failed);
}

TEST(LocalFailure, SeveralMissingRanksAreNamed) {
  auto ends = joinAll(4, {milliseconds(20)});
  EXPECT_EQ(ends[1]->barrier({"eval", 7, "end"}).message,
            "ranks 0, 2 and 3 of 4 did not arrive at barrier 'end' (program 'eval', "
            "update 7) within 20 ms");
}

TEST(LocalFailure, ARankThatLeftIsNamedAtOnce) {
  auto ends = joinAll(3, {std::chrono::hours(1)});
  std::thread waiting([&] {
    EXPECT_EQ(allReduce(*ends[0], 8, {"step", 1, "grad/w"}).message,
              "rank 1 of 3 left before all_reduce 'grad/w' (program 'step', update 1)");
  });
  // Whether it leaves before or after rank 0 waits.
  ends[1].reset();
  waiting.join();
  EXPECT_FALSE(ends[2]->state().ok());
}

TEST(LocalFailure, RanksLeaveInPeaceWhenNoOneWaits) {
  auto ends = joinAll(2);
  onEach(ends, [](Communicator &comm) {
    EXPECT_OK(allReduce(comm, 8, {"step", 1, "grad/w"}));
  });
  ends[0].reset();
  EXPECT_OK(ends[1]->state());
}

TEST(LocalFailure, AbortWakesEveryOneThatWaits) {
  auto ends = joinAll(4, {std::chrono::hours(1)});
  std::atomic<int> begun{0};
  onEach(ends, [&](Communicator &comm) {
    if (comm.rank() == 3) {
      while (begun < 3)
        std::this_thread::yield();
      comm.abort(Status::damaged("the data ended"));
    } else {
      ++begun;
      // Ranks 0 and 1 in a collective, rank 2 in a receive.
      Status status = comm.rank() == 2 ? comm.receive({}, 0, {"step", 1, "activations"})
                                       : allReduce(comm, 8, {"step", 1, "grad/w"});
      EXPECT_EQ(status.code, StatusCode::failed);
      EXPECT_EQ(status.message, "rank 3 of 4 gave up: the data ended");
    }
    comm.abort(Status::failed("too late to be the first"));
    EXPECT_EQ(comm.barrier({"step", 1, "end"}).message,
              "rank 3 of 4 gave up: the data ended");
  });
}

static void expectDiffer(const std::function<Status(Communicator &)> &call,
                         const std::string &message) {
  auto ends = joinAll(3, {std::chrono::hours(1)});
  onEach(ends, [&](Communicator &comm) {
    Status status = call(comm);
    EXPECT_EQ(status.code, StatusCode::failed);
    EXPECT_EQ(status.message, message);
  });
}

TEST(LocalFailure, AnotherCollectiveIsNamedWithItsRank) {
  expectDiffer(
      [](Communicator &comm) {
        return allReduce(comm, 8,
                         {"step", 41, comm.rank() == 1 ? "grad/b" : "grad/w", 3});
      },
      "rank 1 of 3 is at all_reduce 'grad/b' (program 'step', update 41) number 3 with "
      "32 "
      "bytes, but rank 0 at all_reduce 'grad/w' (program 'step', update 41) number 3 "
      "with "
      "32 bytes: ranks must run the same plan in step");
}

TEST(LocalFailure, OtherSizesUpdatesAndRootsAreErrors) {
  expectDiffer(
      [](Communicator &comm) {
        return allReduce(comm, comm.rank() == 2 ? 9 : 8, {"step", 41, "grad/w"});
      },
      "rank 2 of 3 is at all_reduce 'grad/w' (program 'step', update 41) number 0 with "
      "36 "
      "bytes, but rank 0 at all_reduce 'grad/w' (program 'step', update 41) number 0 "
      "with "
      "32 bytes: ranks must run the same plan in step");
  expectDiffer(
      [](Communicator &comm) {
        return allReduce(comm, 8, {"step", comm.rank() == 0 ? 40 : 41, "grad/w"});
      },
      "rank 1 of 3 is at all_reduce 'grad/w' (program 'step', update 41) number 0 with "
      "32 "
      "bytes, but rank 0 at all_reduce 'grad/w' (program 'step', update 40) number 0 "
      "with "
      "32 bytes: ranks must run the same plan in step");
  expectDiffer(
      [](Communicator &comm) {
        return comm.broadcast({}, comm.rank() == 1 ? 1 : 0, {"step", 41, "param/w"});
      },
      "rank 1 of 3 is at broadcast 'param/w' (program 'step', update 41) number 0 with 0 "
      "bytes, but rank 0 at broadcast 'param/w' (program 'step', update 41) number 0 "
      "with "
      "0 bytes, in other types, shards or roots: ranks must run the same plan in step");
}

TEST(LocalFailure, OtherShardsAreErrors) {
  expectDiffer(
      [](Communicator &comm) {
        std::vector<float> values(8, 1);
        std::vector<Part> parts = cut(values, 1);
        std::vector<ElementRange> shards{{0, 2}, {2, 4}, {4, 8}};
        if (comm.rank() == 2)
          shards[1].end = 3;
        return comm.reduceScatter(parts, SumType::f32, shards, {"step", 0, "grad/w"});
      },
      "rank 2 of 3 is at reduce_scatter 'grad/w' (program 'step', update 0) number 0 "
      "with "
      "32 bytes, but rank 0 at reduce_scatter 'grad/w' (program 'step', update 0) number "
      "0 "
      "with 32 bytes, in other types, shards or roots: ranks must run the same plan in "
      "step");
}

TEST(LocalFailure, TwoThatSendToEachOtherAreTold) {
  auto ends = joinAll(2, {std::chrono::hours(1)});
  onEach(ends, [&](Communicator &comm) {
    Status status = comm.send({}, 1 - comm.rank(), {"step", 0, "x"});
    EXPECT_EQ(status.code, StatusCode::failed);
    EXPECT_NE(status.message.find("send 'x'"), std::string::npos) << status.message;
  });
}

TEST(LocalFailure, AReceiveThatNoOneAnswersNamesTheSender) {
  auto ends = joinAll(3, {milliseconds(20)});
  EXPECT_EQ(ends[0]->receive({}, 2, {"step", 5, "x"}).message,
            "rank 2 of 3 did not arrive at receive 'x' (program 'step', update 5) within "
            "20 ms");
}

// Nothing below reaches another rank, so it is the caller's mistake and ends no group.
TEST(LocalFailure, WrongCallsAreRefusedAlone) {
  auto ends = joinAll(2);
  Communicator &comm = *ends[0];
  alignas(8) uint8_t bytes[64] = {};
  const CallLabel label{"step", 1, "w"};
  const Part odd{bytes, 6}, crooked{bytes + 2, 8}, nowhere{nullptr, 8}, good{bytes, 64};
  auto usage = [&](Status status, const char *part) {
    EXPECT_EQ(status.code, StatusCode::usage);
    EXPECT_NE(status.message.find(part), std::string::npos) << status.message;
  };
  usage(comm.allReduce({&odd, 1}, SumType::f32, label), "a part of 6 bytes");
  usage(comm.allReduce({&crooked, 1}, SumType::f32, label), "not aligned");
  usage(comm.allReduce({&nowhere, 1}, SumType::f32, label), "has no address");
  const ElementRange one[] = {{0, 16}}, over[] = {{0, 8}, {8, 17}},
                     both[] = {{0, 9}, {8, 16}};
  usage(comm.allGather({&good, 1}, 4, one, label), "1 shards, expected 2");
  usage(comm.allGather({&good, 1}, 4, over, label), "shard [8, 17)");
  usage(comm.reduceScatter({&good, 1}, SumType::f32, both, label), "shard [8, 16)");
  usage(comm.broadcast({&good, 1}, 2, label), "no other rank 2 among 2");
  usage(comm.send({&good, 1}, 0, label), "no other rank 0 among 2");
  usage(comm.receive({&good, 1}, -1, label), "no other rank -1 among 2");
  EXPECT_OK(comm.state());
}

TEST(LocalFailure, GroupsHaveEachRankOnce) {
  EXPECT_EQ(LocalGroup::create(0).status().code, StatusCode::usage);
  EXPECT_EQ(LocalGroup::create(maxRanks + 1).status().code, StatusCode::usage);
  auto group = LocalGroup::create(2);
  EXPECT_TRUE((*group)->join(1).ok());
  EXPECT_EQ((*group)->join(1).status().message, "rank 1 of 2 has been taken before");
  EXPECT_EQ((*group)->join(2).status().message, "rank 2 in a group of 2");
}

} // namespace sluice::test
