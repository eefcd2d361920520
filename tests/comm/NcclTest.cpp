// Which calls NCCL gets, in which order, by a library that writes them down.

#include "runtime/comm/NcclCommunicator.h"

#include "runtime/comm/DynamicLibrary.h"
#include "tests/comm/Ranks.h"

#include <array>

namespace sluice::test {

using std::chrono::milliseconds;

static const CallLabel label{"step", 41, "grad/w", 3};

/// Rank `own` of a group, whose other ranks only pass on the id.
class Nccl : public testing::Test {
protected:
  void SetUp() override {
    auto library = openLibrary({SLUICE_FAKE_NCCL}, false);
    ASSERT_TRUE(library.ok()) << library.status().message;
    log = reinterpret_cast<decltype(log)>(symbolOf(*library, "fake_log"));
    reset = reinterpret_cast<decltype(reset)>(symbolOf(*library, "fake_reset"));
    reset("", 0, 0);
  }
  Result<std::unique_ptr<Communicator>> open(int ranks, int own, NcclOptions options) {
    through = joinAll(ranks);
    std::array<uint8_t, 128> id;
    id.fill(9);
    std::vector<std::thread> others;
    for (int r = 0; r < ranks; ++r)
      if (r != own)
        others.emplace_back([&, r] {
          std::array<uint8_t, 128> copy = id;
          const Part part{copy.data(), copy.size()};
          (void)through[r]->broadcast({&part, 1}, 0, {"start", 0, "NCCL's id"});
        });
    auto comm = openNccl(*through[own], options);
    for (std::thread &other : others)
      other.join();
    return comm;
  }
  static NcclOptions options(milliseconds timeout = std::chrono::hours(1)) {
    static int stream;
    NcclOptions options;
    options.comm.timeout = timeout;
    options.library = SLUICE_FAKE_NCCL;
    options.stream.stream = &stream;
    options.stream.query = [](void *, bool &done) {
      done = true;
      return Status::success();
    };
    return options;
  }
  /// The log since the last time.
  std::string lines() {
    std::string text = log();
    reset("", 0, 0);
    return text;
  }

  std::vector<std::unique_ptr<Communicator>> through;
  const char *(*log)() = nullptr;
  void (*reset)(const char *, int, int) = nullptr;
};

TEST_F(Nccl, TheIdOfRank0ReachesAll) {
  auto first = open(2, 0, options());
  ASSERT_TRUE(first.ok()) << first.status().message;
  EXPECT_EQ(lines(), "uniqueId\ninit 0 of 2, id 42\n");
  first->reset();
  EXPECT_EQ(lines(), "destroy\n");
  auto second = open(3, 2, options());
  ASSERT_TRUE(second.ok()) << second.status().message;
  EXPECT_EQ(lines(), "init 2 of 3, id 9\n");
  EXPECT_EQ((*second)->kind(), CommKind::nccl);
  EXPECT_EQ((*second)->rank(), 2);
}

TEST_F(Nccl, AMessageIsOneGroup) {
  auto comm = open(2, 1, options());
  ASSERT_TRUE(comm.ok()) << comm.status().message;
  alignas(8) uint8_t memory[96] = {};
  const Part parts[] = {{memory, 16}, {memory + 16, 0}, {memory + 64, 32}};
  (void)lines();
  EXPECT_OK((*comm)->allReduce(parts, SumType::f32, label));
  EXPECT_EQ(lines(), "group\nallReduce 0+4 type 7 op 0 root -1\n"
                     "allReduce 64+8 type 7 op 0 root -1\nend\n");
  EXPECT_OK((*comm)->allReduce(parts, SumType::i64, label));
  EXPECT_EQ(lines(), "group\nallReduce 0+2 type 4 op 0 root -1\n"
                     "allReduce 64+4 type 4 op 0 root -1\nend\n");
  EXPECT_OK((*comm)->broadcast(parts, 1, label));
  EXPECT_EQ(lines(), "group\nbroadcast 0+16 type 1 op -1 root 1\n"
                     "broadcast 64+32 type 1 op -1 root 1\nend\n");
  EXPECT_OK((*comm)->send(parts, 0, label));
  EXPECT_EQ(lines(), "group\nsend 0+16 type 1 op -1 root 0\n"
                     "send 64+32 type 1 op -1 root 0\nend\n");
  EXPECT_OK((*comm)->receive(parts, 0, label));
  EXPECT_EQ(lines(), "group\nrecv 0+16 type 1 op -1 root 0\n"
                     "recv 64+32 type 1 op -1 root 0\nend\n");
}

TEST_F(Nccl, UnevenShardsAreOneCallForEachPiece) {
  auto comm = open(3, 0, options());
  ASSERT_TRUE(comm.ok()) << comm.status().message;
  alignas(8) uint8_t memory[96] = {};
  const Part parts[] = {{memory, 32}, {memory + 64, 32}};
  // Rank 0's shard ends in the second part, rank 1 has none.
  const ElementRange shards[] = {{0, 5}, {5, 5}, {6, 8}};
  (void)lines();
  EXPECT_OK((*comm)->reduceScatter(parts, SumType::f64, shards, label));
  EXPECT_EQ(lines(), "group\nreduce 0+4 type 8 op 0 root 0\n"
                     "reduce 64+1 type 8 op 0 root 0\nreduce 80+2 type 8 op 0 root 2\n"
                     "end\n");
  EXPECT_OK((*comm)->allGather(parts, 8, shards, label));
  EXPECT_EQ(lines(), "group\nbroadcast 0+32 type 1 op -1 root 0\n"
                     "broadcast 64+8 type 1 op -1 root 0\n"
                     "broadcast 80+16 type 1 op -1 root 2\nend\n");
}

TEST_F(Nccl, AnAsynchronousErrorEndsTheCommunicator) {
  auto comm = open(2, 0, options());
  ASSERT_TRUE(comm.ok()) << comm.status().message;
  reset("", 0, 6);
  Status status = (*comm)->allReduce({}, SumType::f32, label);
  EXPECT_EQ(status.code, StatusCode::failed);
  EXPECT_EQ(status.message,
            "NCCL at all_reduce 'grad/w' (program 'step', update 41): remote process "
            "exited or there was a network error");
  EXPECT_EQ(lines(), "group\nend\nabort\n");
  EXPECT_EQ((*comm)->allReduce({}, SumType::f32, label).message, status.message);
  comm->reset();
  EXPECT_EQ(lines(), "");
}

TEST_F(Nccl, ACallThatFailsStillEndsItsGroup) {
  auto comm = open(2, 0, options());
  ASSERT_TRUE(comm.ok()) << comm.status().message;
  reset("allReduce", 6, 0);
  float value = 0;
  const Part part{&value, 4};
  EXPECT_EQ((*comm)->allReduce({&part, 1}, SumType::f32, label).code, StatusCode::failed);
  EXPECT_EQ(lines(), "group\nallReduce 0+1 type 7 op 0 root -1\nend\nabort\n");
}

/// Rank 0 of 3, of which rank 2 does not come to barriers.
class Incomplete : public Communicator {
public:
  Incomplete() : Communicator(CommKind::custom, 0, 3) {}
  void abort(const Status &) override {}
  Status state() const override { return Status::success(); }

protected:
  Status perform(const CommCall &call) override {
    return call.op == CommOp::barrier ? Status::failed("rank 2 does not come to '" +
                                                       std::string(call.label.name) + "'")
                                      : Status::success();
  }
};

TEST_F(Nccl, AMissingRankIsAskedFor) {
  NcclOptions waits = options(milliseconds(10));
  waits.stream.query = [](void *, bool &done) {
    done = false;
    return Status::success();
  };
  Incomplete others;
  auto comm = openNccl(others, waits);
  ASSERT_TRUE(comm.ok()) << comm.status().message;
  (void)lines();
  Status status = (*comm)->allReduce({}, SumType::f32, label);
  EXPECT_EQ(status.message, "rank 2 does not come to 'grad/w'");
  EXPECT_EQ(lines(), "group\nend\nabort\n");
}

TEST_F(Nccl, AbortEndsWhatIsUnderWay) {
  auto comm = open(2, 0, options());
  ASSERT_TRUE(comm.ok()) << comm.status().message;
  (void)lines();
  (*comm)->abort(Status::damaged("the data ended"));
  EXPECT_EQ(lines(), "abort\n");
  EXPECT_EQ((*comm)->barrier(label).message, "rank 0 of 2 gave up: the data ended");
  EXPECT_EQ(through[1]->state().message, "rank 0 of 2 gave up: the data ended");
}

TEST_F(Nccl, PlansOfProcessorsAreRefused) {
  auto ends = joinAll(2);
  Status status = openNccl(*ends[0], {}).status();
  EXPECT_EQ(status.code, StatusCode::refused);
  EXPECT_EQ(status.message, "NCCL sums memory of CUDA devices, but this plan is for "
                            "'cpu': use '--comm mpi' or '--comm local'");
}

TEST_F(Nccl, AMissingLibraryIsAClearRefusal) {
  NcclOptions elsewhere = options();
  elsewhere.library = "no/such/libnccl.so.2";
  auto ends = joinAll(2);
  Status status = openNccl(*ends[0], elsewhere).status();
  EXPECT_EQ(status.code, StatusCode::cannotRunHere);
  EXPECT_NE(status.message.find("NCCL is not available: no/such/libnccl.so.2"),
            std::string::npos)
      << status.message;
}

TEST_F(Nccl, AStartThatFailsIsNamed) {
  reset("init", 6, 0);
  EXPECT_EQ(open(2, 1, options()).status().message,
            "NCCL does not start: remote process exited or there was a network error");
}

} // namespace sluice::test
