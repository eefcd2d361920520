// What collectives compute, for each kind of group that fits in one process.

#include "tests/comm/MailTransport.h"
#include "tests/comm/Ranks.h"

#include <atomic>
#include <cstdlib>
#include <new>

// Counts what this program allocates, by thread.
static thread_local size_t allocations = 0;

void *operator new(size_t bytes) {
  ++allocations;
  if (void *memory = std::malloc(bytes ? bytes : 1))
    return memory;
  throw std::bad_alloc();
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }

namespace sluice::test {

/// Threads that share memory; threads that send messages, done at once or when received.
enum class Kind { local, messages, bufferedMessages };

class Collectives : public testing::TestWithParam<Kind> {
protected:
  void onRanks(int ranks, const RankBody &body) {
    if (GetParam() == Kind::local)
      return test::onRanks(ranks, body);
    Mail mail(ranks, GetParam() == Kind::bufferedMessages);
    std::vector<std::unique_ptr<Communicator>> ends;
    for (int r = 0; r < ranks; ++r)
      ends.push_back(mail.communicator(r));
    onEachThenLeave(std::move(ends), body);
  }
  template <class T> void expectAllReduce(SumType type);
};

static std::string nameOf(const testing::TestParamInfo<Kind> &info) {
  const char *names[] = {"local", "messages", "buffered"};
  return names[static_cast<int>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(, Collectives,
                         testing::Values(Kind::local, Kind::messages,
                                         Kind::bufferedMessages),
                         nameOf);

static const CallLabel label{"step", 41, "grad/w", 3};

template <class T> void Collectives::expectAllReduce(SumType type) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    const size_t counts[] = {0, 1, 5, 1000, 10007};
    std::vector<std::vector<T>> expected;
    for (size_t count : counts)
      expected.push_back(treeSum<T>([&](int r) { return valuesOf<T>(r, count); }, ranks));
    onRanks(ranks, [&](Communicator &comm) {
      for (const std::vector<T> &sum : expected) {
        std::vector<T> values = valuesOf<T>(comm.rank(), sum.size());
        // Each rank cuts its message in another way.
        std::vector<Part> parts = cut(values, 1 + 7 * comm.rank());
        EXPECT_OK(comm.allReduce(parts, type, label));
        EXPECT_EQ(values, sum) << ranks << " ranks, " << sum.size() << " elements";
      }
    });
  }
}

TEST_P(Collectives, AllReduceGivesTheTreesBits) {
  expectAllReduce<float>(SumType::f32);
  expectAllReduce<double>(SumType::f64);
  expectAllReduce<uint64_t>(SumType::i64);
}

TEST_P(Collectives, ReduceScatterSumsTheOwnShardAlone) {
  for (int ranks : {1, 2, 3, 5, 8}) {
    for (size_t count : {0, 3, 1021}) {
      std::vector<float> sum =
          treeSum<float>([&](int r) { return valuesOf<float>(r, count); }, ranks);
      std::vector<ElementRange> shards = unevenShards(count, ranks);
      onRanks(ranks, [&](Communicator &comm) {
        std::vector<float> values = valuesOf<float>(comm.rank(), count);
        std::vector<float> expected = values;
        // A group of one has no one to add.
        for (uint64_t i = shards[comm.rank()].begin; i < shards[comm.rank()].end; ++i)
          expected[i] = sum[i];
        std::vector<Part> parts = cut(values, 1 + comm.rank());
        EXPECT_OK(comm.reduceScatter(parts, SumType::f32, shards, label));
        EXPECT_EQ(values, expected) << ranks << " ranks, " << count << " elements";
      });
    }
  }
}

TEST_P(Collectives, AllGatherCollectsUnevenShards) {
  for (int ranks : {1, 2, 3, 5, 8}) {
    for (size_t count : {0, 3, 1021}) {
      std::vector<ElementRange> shards = unevenShards(count, ranks);
      onRanks(ranks, [&](Communicator &comm) {
        std::vector<uint16_t> values(count, static_cast<uint16_t>(comm.rank()));
        std::vector<uint16_t> expected = values;
        for (int r = 0; r < ranks; ++r)
          for (uint64_t i = shards[r].begin; i < shards[r].end; ++i)
            expected[i] = static_cast<uint16_t>(r);
        std::vector<Part> parts = cut(values, 1 + 3 * comm.rank());
        EXPECT_OK(comm.allGather(parts, sizeof(uint16_t), shards, label));
        EXPECT_EQ(values, expected) << ranks << " ranks, " << count << " elements";
      });
    }
  }
}

TEST_P(Collectives, GatheredSumsAreAllReduced) {
  std::vector<ElementRange> shards = unevenShards(5000, 3);
  shards.back().end = 5000;
  std::vector<double> expected =
      treeSum<double>([&](int r) { return valuesOf<double>(r, 5000); }, 3);
  for (uint64_t i = 0; i < shards[0].begin; ++i)
    expected[i] = 0;
  onRanks(3, [&](Communicator &comm) {
    std::vector<double> values = valuesOf<double>(comm.rank(), 5000);
    std::vector<Part> parts = cut(values, 4);
    EXPECT_OK(comm.reduceScatter(parts, SumType::f64, shards, label));
    EXPECT_OK(comm.allGather(parts, sizeof(double), shards, label));
    for (const ElementRange &shard : shards)
      for (uint64_t i = shard.begin; i < shard.end; ++i)
        ASSERT_EQ(values[i], expected[i]) << i;
  });
}

TEST_P(Collectives, BroadcastGivesTheRootsBytes) {
  for (int root = 0; root < 4; ++root)
    onRanks(4, [&](Communicator &comm) {
      std::vector<uint8_t> values(777, static_cast<uint8_t>(comm.rank()));
      std::vector<Part> parts = cut(values, 1 + comm.rank());
      EXPECT_OK(comm.broadcast(parts, root, label));
      EXPECT_EQ(values, std::vector<uint8_t>(777, static_cast<uint8_t>(root)));
    });
}

TEST_P(Collectives, MessagesGoAroundARing) {
  onRanks(5, [&](Communicator &comm) {
    std::vector<int64_t> own(100, comm.rank()), got(100, -1);
    std::vector<Part> out = cut(own, 3), in = cut(got, 5);
    int next = (comm.rank() + 1) % 5, last = (comm.rank() + 4) % 5;
    for (int round = 0; round < 20; ++round) {
      // Even ranks first send, then receive; of the two neighbours that are both even,
      // the one before waits.
      if (comm.rank() % 2 == 0)
        EXPECT_OK(comm.send(out, next, {"ring", round, "pass"}));
      EXPECT_OK(comm.receive(in, last, {"ring", round, "pass"}));
      if (comm.rank() % 2 == 1)
        EXPECT_OK(comm.send(out, next, {"ring", round, "pass"}));
      EXPECT_EQ(got, std::vector<int64_t>(100, last));
    }
  });
}

TEST_P(Collectives, NoOnePassesABarrierBeforeAllAreThere) {
  std::atomic<int> here{0};
  onRanks(6, [&](Communicator &comm) {
    for (int round = 1; round <= 50; ++round) {
      ++here;
      EXPECT_OK(comm.barrier({"step", round, "end"}));
      EXPECT_GE(here, 6 * round);
      EXPECT_OK(comm.barrier({"step", round, "next"}));
    }
  });
}

TEST_P(Collectives, GroupsDoNotDisturbEachOther) {
  std::vector<std::thread> threads;
  for (int group = 0; group < 2; ++group)
    threads.emplace_back([this, group] {
      onRanks(3, [&](Communicator &comm) {
        for (int round = 0; round < 200; ++round) {
          std::vector<int64_t> values(17, comm.rank() + group * 1000 + round);
          std::vector<Part> parts = cut(values, 2);
          EXPECT_OK(comm.allReduce(parts, SumType::i64, label));
          EXPECT_EQ(values[16], 3 + 3 * (group * 1000 + round));
        }
      });
    });
  for (std::thread &thread : threads)
    thread.join();
}

// Sizes around a piece, a step of pieces and several steps.
TEST_P(Collectives, LongMessagesGiveTheTreesBits) {
  for (int ranks : {2, 3, 4})
    for (size_t count : {1 << 17, (1 << 19) + 1}) {
      std::vector<float> expected =
          treeSum<float>([&](int r) { return valuesOf<float>(r, count); }, ranks);
      onRanks(ranks, [&](Communicator &comm) {
        std::vector<float> values = valuesOf<float>(comm.rank(), count);
        std::vector<Part> parts = cut(values, comm.rank() == 1 ? 100 : 1);
        EXPECT_OK(comm.allReduce(parts, SumType::f32, label));
        EXPECT_TRUE(values == expected) << ranks << " ranks, " << count << " elements";
        for (float &value : values)
          value = comm.rank() == 1 ? expected[&value - values.data()] : 0;
        EXPECT_OK(comm.broadcast(parts, 1, label));
        EXPECT_TRUE(values == expected) << ranks << " ranks, " << count << " elements";
        if (comm.rank() == 0)
          EXPECT_OK(comm.send(parts, 1, label));
        if (comm.rank() != 1)
          return;
        std::fill(values.begin(), values.end(), 0);
        EXPECT_OK(comm.receive(parts, 0, label));
        EXPECT_TRUE(values == expected) << ranks << " ranks, " << count << " elements";
      });
    }
}

TEST_P(Collectives, LongUnevenShardsAreScatteredAndGathered) {
  const size_t count = 700001;
  for (int ranks : {2, 5}) {
    std::vector<ElementRange> shards = unevenShards(count, ranks);
    std::vector<float> sum =
        treeSum<float>([&](int r) { return valuesOf<float>(r, count); }, ranks);
    onRanks(ranks, [&](Communicator &comm) {
      std::vector<float> values = valuesOf<float>(comm.rank(), count);
      std::vector<float> expected = values;
      std::vector<Part> parts = cut(values, 1 + 20 * comm.rank());
      for (uint64_t i = shards[comm.rank()].begin; i < shards[comm.rank()].end; ++i)
        expected[i] = sum[i];
      EXPECT_OK(comm.reduceScatter(parts, SumType::f32, shards, label));
      EXPECT_TRUE(values == expected) << ranks << " ranks";
      for (const ElementRange &shard : shards)
        for (uint64_t i = shard.begin; i < shard.end; ++i)
          expected[i] = sum[i];
      EXPECT_OK(comm.allGather(parts, sizeof(float), shards, label));
      EXPECT_TRUE(values == expected) << ranks << " ranks";
    });
  }
}

TEST(LocalGroup, CallsAllocateNothing) {
  onRanks(4, [&](Communicator &comm) {
    std::vector<float> values = valuesOf<float>(comm.rank(), 10000);
    std::vector<Part> parts = cut(values, 9);
    std::vector<ElementRange> shards = unevenShards(10000, 4);
    int next = comm.rank() ^ 1;
    size_t before = allocations;
    bool ok = comm.allReduce(parts, SumType::f32, label).ok();
    ok &= comm.reduceScatter(parts, SumType::f32, shards, label).ok();
    ok &= comm.allGather(parts, 4, shards, label).ok();
    ok &= comm.broadcast(parts, 1, label).ok();
    ok &= comm.barrier(label).ok();
    ok &= comm.rank() % 2 ? comm.send(parts, next, label).ok()
                          : comm.receive(parts, next, label).ok();
    EXPECT_EQ(allocations, before);
    EXPECT_TRUE(ok);
  });
}

} // namespace sluice::test
