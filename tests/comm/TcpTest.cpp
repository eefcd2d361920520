// Ranks over TCP on this machine: where they meet, the bits of the tree, and who is named
// when one does not come, comes twice, or goes.

#include "runtime/comm/DynamicLibrary.h"
#include "runtime/comm/NcclCommunicator.h"
#include "runtime/comm/TcpCommunicator.h"

#include "tests/comm/Ranks.h"

#include <arpa/inet.h>
#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace sluice::test {

using std::chrono::milliseconds;

static const CallLabel label{"step", 41, "grad/w", 3};

class Tcp : public testing::Test {
protected:
  void SetUp() override {
    folder = std::filesystem::temp_directory_path() /
             ("sluice-tcp-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::string place() const { return "file:" + (folder / "meeting").string(); }

  /// Each on a thread; `body` gets what openTcp gave.
  using Body = std::function<void(int, Result<std::unique_ptr<Communicator>> &)>;
  static void onEachRank(int ranks, const std::string &where, const Body &body,
                         milliseconds timeout = std::chrono::minutes(1)) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([=, &body] {
        auto comm = openTcp({where, rank, ranks, timeout}, {.timeout = timeout});
        body(rank, comm);
      });
    for (std::thread &thread : threads)
      thread.join();
  }

  std::filesystem::path folder;
};

/// A port of this process, below those that the system hands out, on which nothing
/// listens.
static std::string freeAddress() {
  static int next = getpid();
  for (;; ++next) {
    int port = 20000 + next % 10000;
    Socket probe(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in any = {};
    any.sin_family = AF_INET;
    any.sin_port = htons(static_cast<uint16_t>(port));
    if (bind(probe.get(), reinterpret_cast<sockaddr *>(&any), sizeof any) == 0) {
      ++next;
      return "tcp:127.0.0.1:" + std::to_string(port);
    }
  }
}

TEST_F(Tcp, GivesTheBitsOfTheTree) {
  for (int ranks : {1, 2, 3, 4}) {
    std::vector<std::vector<float>> sums(static_cast<size_t>(ranks));
    // Longer than a piece, and longer than what a socket takes at once.
    constexpr size_t count = 700001;
    auto inputOf = [](int rank, size_t i) { return 1.f / float(1 + rank + i % 1000); };
    onEachRank(ranks, place(), [&](int rank, auto &comm) {
      ASSERT_TRUE(comm.ok()) << comm.status().message;
      EXPECT_EQ((*comm)->kind(), CommKind::tcp);
      std::vector<float> own(count);
      for (size_t i = 0; i < count; ++i)
        own[i] = inputOf(rank, i);
      const Part part{own.data(), count * sizeof(float)};
      EXPECT_OK((*comm)->allReduce({&part, 1}, SumType::f32, label));
      EXPECT_OK((*comm)->barrier(label));
      sums[static_cast<size_t>(rank)] = std::move(own);
    });
    std::vector<std::vector<float>> expected(static_cast<size_t>(ranks));
    onRanks(ranks, [&](Communicator &comm) {
      std::vector<float> own(count);
      for (size_t i = 0; i < count; ++i)
        own[i] = inputOf(comm.rank(), i);
      const Part part{own.data(), count * sizeof(float)};
      EXPECT_OK(comm.allReduce({&part, 1}, SumType::f32, label));
      expected[static_cast<size_t>(comm.rank())] = std::move(own);
    });
    EXPECT_TRUE(sums == expected) << ranks;
    EXPECT_FALSE(std::filesystem::exists(folder / "meeting")) << "it is gone afterwards";
  }
}

TEST_F(Tcp, RanksMeetAtAnAddress) {
  onEachRank(3, freeAddress(), [&](int rank, auto &comm) {
    ASSERT_TRUE(comm.ok()) << comm.status().message;
    int64_t value = rank + 1;
    const Part part{&value, sizeof value};
    EXPECT_OK((*comm)->allReduce({&part, 1}, SumType::i64, label));
    EXPECT_EQ(value, 6);
  });
}

TEST_F(Tcp, NcclsIdComesThroughAFileOrAnAddress) {
  auto library = openLibrary({SLUICE_FAKE_NCCL}, false);
  ASSERT_TRUE(library.ok()) << library.status().message;
  auto reset = reinterpret_cast<void (*)(const char *, int, int)>(
      symbolOf(*library, "fake_reset"));
  for (const std::string &where : {place(), freeAddress()}) {
    reset("", 0, 0);
    onEachRank(2, where, [&](int rank, auto &through) {
      ASSERT_TRUE(through.ok()) << through.status().message;
      if (rank == 1) { // the library writes down one rank's calls
        std::array<uint8_t, 128> id = {};
        const Part part{id.data(), id.size()};
        EXPECT_OK((*through)->broadcast({&part, 1}, 0, {"start", 0, "NCCL's id"}));
        EXPECT_EQ(id[0], 42);
        return;
      }
      static int stream;
      NcclOptions options;
      options.library = SLUICE_FAKE_NCCL;
      options.stream.stream = &stream;
      options.stream.query = [](void *, bool &done) {
        done = true;
        return Status::success();
      };
      auto comm = openNccl(**through, options);
      EXPECT_TRUE(comm.ok()) << comm.status().message;
    });
  }
}

TEST_F(Tcp, WhoDoesNotComeIsNamed) {
  std::vector<std::thread> threads;
  std::string where = place();
  for (int rank : {0, 2})
    threads.emplace_back([=] {
      auto comm = openTcp({where, rank, 3, milliseconds(700)});
      ASSERT_FALSE(comm.ok());
      EXPECT_EQ(comm.status().code, StatusCode::failed);
      if (rank == 0) {
        EXPECT_NE(comm.status().message.find("rank 1 of 3 did not come to 'file:"),
                  std::string::npos)
            << comm.status().message;
      }
    });
  for (std::thread &thread : threads)
    thread.join();
}

TEST_F(Tcp, WhatIsWrongIsSaid) {
  auto messageOf = [](const std::string &where, int rank = 0, int size = 2) {
    auto comm = openTcp({where, rank, size, milliseconds(300)});
    return comm.ok() ? "" : comm.status().message;
  };
  EXPECT_EQ(messageOf("somewhere"), "'somewhere' is no place to meet, expected "
                                    "tcp:HOST:PORT or file:PATH");
  EXPECT_EQ(messageOf("tcp:host"), "'tcp:host' is no address, expected tcp:HOST:PORT");
  EXPECT_EQ(messageOf("tcp:host:0"),
            "'tcp:host:0' is no address, expected tcp:HOST:PORT");
  EXPECT_NE(messageOf(place(), 2).find("rank 2 of 2, expected 0 to"), std::string::npos);
  std::ofstream(folder / "meeting") << "left by another job\n";
  EXPECT_NE(messageOf(place()).find("is there already"), std::string::npos);
}

TEST_F(Tcp, RanksOfAnotherGroupAreRefused) {
  std::string where = place();
  std::thread other([=] {
    auto comm = openTcp({where, 1, 3, std::chrono::seconds(20)});
    EXPECT_FALSE(comm.ok());
  });
  auto comm = openTcp({where, 0, 2, std::chrono::seconds(20)});
  other.join();
  ASSERT_FALSE(comm.ok());
  EXPECT_EQ(comm.status().message, "a rank of 3 came to meet a group of 2: start all "
                                   "with the same number of ranks");
}

TEST_F(Tcp, AProcessThatIsKilledIsNamed) {
  std::string where = place();
  pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) { // rank 1: there, then gone
    auto comm = openTcp({where, 1, 2, std::chrono::minutes(1)});
    if (comm.ok())
      (void)(*comm)->barrier(label);
    raise(SIGKILL);
  }
  CommOptions options{.timeout = std::chrono::minutes(1)};
  auto comm = openTcp({where, 0, 2, std::chrono::minutes(1)}, options);
  ASSERT_TRUE(comm.ok()) << comm.status().message;
  EXPECT_OK((*comm)->barrier(label));
  Status status = (*comm)->barrier(label);
  EXPECT_EQ(status.code, StatusCode::failed);
  EXPECT_NE(status.message.find("rank 1 of 2"), std::string::npos) << status.message;
  waitpid(child, nullptr, 0);
}

} // namespace sluice::test
