// What the collectives of a group of threads compute.

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

static const CallLabel label{"step", 41, "grad/w", 3};

template <class T> static void expectAllReduce(SumType type) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (size_t count : {0, 1, 5, 1000, 10007}) {
      std::vector<T> expected =
          treeSum<T>([&](int r) { return valuesOf<T>(r, count); }, ranks);
      onRanks(ranks, [&](Communicator &comm) {
        std::vector<T> values = valuesOf<T>(comm.rank(), count);
        // Each rank cuts its message in another way.
        std::vector<Part> parts = cut(values, 1 + 7 * comm.rank());
        EXPECT_OK(comm.allReduce(parts, type, label));
        EXPECT_EQ(values, expected) << ranks << " ranks, " << count << " elements";
      });
    }
  }
}

TEST(LocalGroup, AllReduceGivesTheTreesBits) {
  expectAllReduce<float>(SumType::f32);
  expectAllReduce<double>(SumType::f64);
  expectAllReduce<uint64_t>(SumType::i64);
}

TEST(LocalGroup, ReduceScatterSumsTheOwnShardAlone) {
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

TEST(LocalGroup, AllGatherCollectsUnevenShards) {
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

TEST(LocalGroup, GatheredSumsAreAllReduced) {
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

TEST(LocalGroup, BroadcastGivesTheRootsBytes) {
  for (int root = 0; root < 4; ++root)
    onRanks(4, [&](Communicator &comm) {
      std::vector<uint8_t> values(777, static_cast<uint8_t>(comm.rank()));
      std::vector<Part> parts = cut(values, 1 + comm.rank());
      EXPECT_OK(comm.broadcast(parts, root, label));
      EXPECT_EQ(values, std::vector<uint8_t>(777, static_cast<uint8_t>(root)));
    });
}

TEST(LocalGroup, MessagesGoAroundARing) {
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

TEST(LocalGroup, NoOnePassesABarrierBeforeAllAreThere) {
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

TEST(LocalGroup, GroupsDoNotDisturbEachOther) {
  std::vector<std::thread> threads;
  for (int group = 0; group < 2; ++group)
    threads.emplace_back([group] {
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
