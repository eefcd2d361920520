// Failures of groups that send messages.

#include "tests/comm/MailTransport.h"
#include "tests/comm/Ranks.h"

#include <atomic>

namespace sluice::test {

using std::chrono::milliseconds;

class MailedGroup {
public:
  explicit MailedGroup(int ranks, milliseconds timeout = std::chrono::hours(1),
                       bool buffered = false)
      : mail(ranks, buffered) {
    for (int r = 0; r < ranks; ++r)
      ends.push_back(mail.communicator(r, {timeout, true}));
  }
  void onEach(const RankBody &body) { test::onEach(ends, body); }

  Mail mail;
  std::vector<std::unique_ptr<Communicator>> ends;
};

static Status allReduce(Communicator &comm, size_t count, const CallLabel &label) {
  std::vector<float> values(count, 1);
  std::vector<Part> parts = cut(values, 2);
  return comm.allReduce(parts, SumType::f32, label);
}

TEST(Messages, AMissingRankIsNamed) {
  MailedGroup group(2, milliseconds(20));
  Status status = allReduce(*group.ends[0], 8, {"step", 41, "grad/fc1.weight+3"});
  EXPECT_EQ(status.code, StatusCode::failed);
  EXPECT_EQ(status.message, "rank 1 of 2 did not arrive at all_reduce "
                            "'grad/fc1.weight+3' (program 'step', update 41) within "
                            "20 ms");
}

TEST(Messages, AMissingRankIsNamedOnAllThatWait) {
  for (size_t count : {8, 100000}) {
    MailedGroup group(4, milliseconds(50));
    group.onEach([&](Communicator &comm) {
      if (comm.rank() == 2)
        return;
      Status status = allReduce(comm, count, {"step", 41, "grad/w"});
      EXPECT_EQ(status.code, StatusCode::failed);
      expectNamed(status, 2, 4);
    });
    // The one that comes late learns why no one waits any more.
    expectNamed(allReduce(*group.ends[2], count, {"step", 41, "grad/w"}), 2, 4);
  }
}

TEST(Messages, ARankThatLeftIsNamed) {
  MailedGroup group(3, std::chrono::hours(1), true);
  group.ends[1].reset();
  EXPECT_EQ(allReduce(*group.ends[0], 8, {"step", 1, "grad/w"}).message,
            "rank 1 of 3 left before all_reduce 'grad/w' (program 'step', update 1)");
}

TEST(Messages, AbortReachesEveryOneThatWaits) {
  MailedGroup group(4);
  std::atomic<int> begun{0};
  group.onEach([&](Communicator &comm) {
    if (comm.rank() == 3) {
      while (begun < 3)
        std::this_thread::yield();
      comm.abort(Status::damaged("the data ended"));
    } else {
      ++begun;
      Status status = comm.rank() == 2 ? comm.receive({}, 0, {"step", 1, "activations"})
                                       : allReduce(comm, 8, {"step", 1, "grad/w"});
      EXPECT_EQ(status.code, StatusCode::failed);
      EXPECT_EQ(status.message, "rank 3 of 4 gave up: the data ended");
    }
    EXPECT_EQ(comm.barrier({"step", 1, "end"}).message,
              "rank 3 of 4 gave up: the data ended");
  });
}

// As the runtime does when another of its threads finds a mistake.
TEST(Messages, AbortFromAnotherThreadEndsTheCall) {
  MailedGroup group(2);
  std::thread waiting([&] {
    EXPECT_EQ(allReduce(*group.ends[0], 8, {"step", 1, "grad/w"}).message,
              "rank 0 of 2 gave up: stopped by the user");
  });
  group.ends[0]->abort(Status::refused("stopped by the user"));
  waiting.join();
  EXPECT_EQ(allReduce(*group.ends[1], 8, {"step", 1, "grad/w"}).message,
            "rank 0 of 2 gave up: stopped by the user");
}

TEST(Messages, AnotherCallIsNamedWithItsRank) {
  MailedGroup group(3);
  group.onEach([](Communicator &comm) {
    EXPECT_EQ(
        allReduce(comm, 9 - comm.rank() / 2, {"step", 41, "grad/w", 3}).message,
        "rank 2 of 3 is at all_reduce 'grad/w' (program 'step', update 41) number 3 with "
        "32 bytes, but rank 0 at all_reduce 'grad/w' (program 'step', update 41) number "
        "3 "
        "with 36 bytes: ranks must run the same plan in step");
  });
}

TEST(Messages, NamesThatDifferBehindWhatIsSentDiffer) {
  MailedGroup group(2);
  std::string name(300, 'x');
  group.onEach([&](Communicator &comm) {
    std::string own = name + std::to_string(comm.rank());
    EXPECT_EQ(allReduce(comm, 8, {"step", 41, own}).code, StatusCode::failed);
  });
}

TEST(Messages, OtherShardsRootsAndTypesAreErrors) {
  const ElementRange even[] = {{0, 4}, {4, 8}}, uneven[] = {{0, 3}, {3, 8}};
  alignas(8) double values[2][8] = {};
  auto differ = [&](const std::function<Status(Communicator &, bool)> &call) {
    MailedGroup group(2);
    group.onEach([&](Communicator &comm) {
      Status status = call(comm, comm.rank() == 1);
      EXPECT_EQ(status.code, StatusCode::failed);
      EXPECT_NE(status.message.find("in other types, shards or roots"), std::string::npos)
          << status.message;
    });
  };
  auto part = [&](Communicator &comm) { return Part{values[comm.rank()], 64}; };
  differ([&](Communicator &comm, bool other) {
    Part own = part(comm);
    return comm.allGather({&own, 1}, 8, other ? even : uneven, {"step", 0, "w"});
  });
  differ([&](Communicator &comm, bool other) {
    Part own = part(comm);
    return comm.broadcast({&own, 1}, other, {"step", 0, "w"});
  });
  differ([&](Communicator &comm, bool other) {
    Part own = part(comm);
    return comm.allReduce({&own, 1}, other ? SumType::f64 : SumType::i64,
                          {"step", 0, "w"});
  });
}

TEST(Messages, ATransportThatFailsEndsTheGroup) {
  MailedGroup group(3, milliseconds(50));
  group.mail.strike(1);
  group.onEach([](Communicator &comm) {
    Status status = allReduce(comm, 8, {"step", 3, "grad/w"});
    EXPECT_EQ(status.code, StatusCode::failed);
    if (comm.rank() == 1)
      EXPECT_NE(status.message.find("the mail is on strike"), std::string::npos);
    else
      expectNamed(status, 1, 3);
  });
}

TEST(Messages, TransportsThatCannotBeAreRefused) {
  Mail mail(2);
  sluice_transport transport = mail.end(0);
  transport.test = nullptr;
  EXPECT_EQ(overTransport(transport, {}).status().code, StatusCode::usage);
  transport = mail.end(0);
  transport.rank = 2;
  EXPECT_EQ(overTransport(transport, {}).status().message,
            "a transport of rank 2 among 2, expected at most 4096 ranks");
}

} // namespace sluice::test
