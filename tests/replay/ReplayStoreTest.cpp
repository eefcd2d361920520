// A replay buffer on the disk: what was acknowledged is there whenever the process ends.

#include "runtime/replay/ReplayStore.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sys/wait.h>
#include <unistd.h>

namespace sluice {
namespace {

namespace fs = std::filesystem;

struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "replay-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path); }
};

ReplayBuffer emptyBuffer(uint64_t bytes = 20 * 40, uint64_t seed = 3) {
  ReplayOptions options;
  options.capacityBytes = bytes;
  options.seed = seed;
  auto buffer = ReplayBuffer::create({{"x", 8}}, options);
  EXPECT_TRUE(buffer);
  return std::move(*buffer);
}

Status add(ReplayStore &store, int64_t first, int64_t count) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < count; ++i)
    numbers.push_back(first + i);
  std::vector<ReplaySample> samples;
  for (const int64_t &number : numbers)
    samples.push_back({{&number}, number % 3, 0});
  return store.add(samples);
}

/// What a buffer holds that was offered 0, 1, ... in turn.
std::vector<uint8_t> stateAfter(int64_t count, uint64_t bytes = 20 * 40) {
  ReplayBuffer buffer = emptyBuffer(bytes);
  for (int64_t i = 0; i < count; ++i) {
    const void *sample[] = {&i};
    buffer.offer(sample, i % 3, 0);
  }
  return buffer.state();
}

TEST(ReplayStore, ComesBackAsItWas) {
  Folder folder;
  {
    auto store = ReplayStore::open(emptyBuffer(), folder.path);
    ASSERT_TRUE(store);
    for (int64_t i = 0; i < 50; i += 5)
      ASSERT_TRUE(add(*store, i, 5).ok());
    ASSERT_TRUE(store->compact().ok());
    ASSERT_TRUE(add(*store, 50, 7).ok());
    ASSERT_TRUE(store->setForgetting(0, 0.9, 0.4, 2).ok());
  }
  auto store = ReplayStore::open(emptyBuffer(), folder.path);
  ASSERT_TRUE(store);
  ReplayBuffer expected = emptyBuffer();
  ASSERT_TRUE(expected.restore(stateAfter(57)).ok());
  expected.setForgetting(0, 0.9, 0.4, 2);
  EXPECT_EQ(store->buffer().state(), expected.state());
}

TEST(ReplayStore, ALogThatOutgrowsTheBufferBecomesItsState) {
  Folder folder;
  constexpr uint64_t bytes = 1 << 10;
  auto store = ReplayStore::open(emptyBuffer(bytes), folder.path);
  ASSERT_TRUE(store);
  int64_t done = 0;
  while (!fs::exists(folder.path / "replay-1.log") && done < 100000) {
    ASSERT_TRUE(add(*store, done, 1000).ok());
    done += 1000;
  }
  EXPECT_LT(done, 100000);
  EXPECT_FALSE(fs::exists(folder.path / "replay-0.log"));
  auto again = ReplayStore::open(emptyBuffer(bytes), folder.path);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->buffer().state(), stateAfter(done, bytes));
}

/// In a child that is killed before the n-th change of the disk. Says on `out` how many
/// samples were acknowledged.
[[noreturn]] void addUntilKilled(const fs::path &path, int calls, int out) {
  int left = calls;
  auto store = ReplayStore::open(emptyBuffer(), path, [&](const char *) {
    if (left-- == 0)
      ::kill(::getpid(), SIGKILL);
  });
  if (!store)
    ::_exit(3);
  for (int64_t done = 0; done < 24; done += 4) {
    if (!add(*store, done, 4).ok() || (done == 8 && !store->compact().ok()))
      ::_exit(3);
    int64_t acknowledged = done + 4;
    if (::write(out, &acknowledged, sizeof acknowledged) != sizeof acknowledged)
      ::_exit(3);
  }
  ::_exit(0);
}

TEST(ReplayStore, KilledAtAnyWriteItLosesNothingAcknowledged) {
  bool isDone = false;
  int calls = 0;
  for (; !isDone && calls < 200; ++calls) {
    Folder folder;
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0)
      addUntilKilled(folder.path, calls, ends[1]);
    ::close(ends[1]);
    int64_t acknowledged = 0, read = 0;
    while (::read(ends[0], &read, sizeof read) == sizeof read)
      acknowledged = read;
    ::close(ends[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    isDone = WIFEXITED(status);
    ASSERT_TRUE(!isDone || WEXITSTATUS(status) == 0);
    auto store = ReplayStore::open(emptyBuffer(), folder.path);
    ASSERT_TRUE(store) << store.status().message;
    int64_t seen = store->buffer().seen();
    EXPECT_GE(seen, acknowledged) << "killed before change " << calls;
    EXPECT_LE(seen, acknowledged + 4);
    EXPECT_EQ(store->buffer().state(), stateAfter(seen)) << calls;
  }
  EXPECT_TRUE(isDone);
  EXPECT_GT(calls, 15);
}

TEST(ReplayStore, ATornEndOfTheLogIsLeftOut) {
  Folder folder;
  {
    auto store = ReplayStore::open(emptyBuffer(), folder.path);
    ASSERT_TRUE(store && add(*store, 0, 4).ok() && add(*store, 4, 4).ok());
  }
  fs::path log = folder.path / "replay-0.log";
  auto whole = fs::file_size(log);
  for (uint64_t cut : {whole - 1, whole - 20, whole / 2 + 3}) {
    fs::resize_file(log, cut);
    auto store = ReplayStore::open(emptyBuffer(), folder.path);
    ASSERT_TRUE(store);
    EXPECT_EQ(store->buffer().state(), stateAfter(4));
    ASSERT_TRUE(add(*store, 4, 4).ok()); // behind what is whole
  }
  auto store = ReplayStore::open(emptyBuffer(), folder.path);
  ASSERT_TRUE(store);
  EXPECT_EQ(store->buffer().state(), stateAfter(8));
}

TEST(ReplayStore, AnotherBufferIsRefused) {
  Folder folder;
  {
    auto store = ReplayStore::open(emptyBuffer(), folder.path);
    ASSERT_TRUE(store && add(*store, 0, 4).ok());
  }
  auto other = ReplayStore::open(emptyBuffer(30 * 40), folder.path);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.status().message,
            "the replay buffer was saved with 800 bytes, expected 1200");
  std::fstream file(folder.path / "replay.state",
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(60).put('\x7f');
  file.close();
  auto damaged = ReplayStore::open(emptyBuffer(), folder.path);
  ASSERT_FALSE(damaged);
  EXPECT_EQ(damaged.status().code, StatusCode::damaged);
}

} // namespace
} // namespace sluice
