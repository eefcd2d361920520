#include "TestPlan.h"

#include "runtime/Checkpoint.h"
#include "runtime/Safetensors.h"

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace sluice::test {

namespace fs = std::filesystem;

static void step(Session &session, float target) {
  std::vector<float> targets = {target};
  StepResult result;
  Status status = session.step(batchOf(targets, session.samples()), result);
  ASSERT_TRUE(status.ok()) << status.message;
}

static std::string save(const Session &session, const std::string &folder,
                        const CheckpointOptions &options = {}) {
  auto path = saveCheckpoint(session, folder, options);
  EXPECT_TRUE(path.ok()) << path.status().message;
  return path.ok() ? *path : std::string();
}

TEST(Checkpoint, ResumesBitExactlyAtEveryStep) {
  PlanPtr plan = adamPlan(0.01).read();
  auto straight = makeSession(plan);
  std::vector<float> expected;
  for (int i = 0; i < 12; ++i) {
    step(*straight, 0);
    expected.push_back(scalarState(*straight, "param/w"));
  }
  for (int stopAt = 0; stopAt < 12; ++stopAt) {
    TemporaryFolder folder;
    auto first = makeSession(plan);
    for (int i = 0; i < stopAt; ++i)
      step(*first, 0);
    save(*first, folder.path);
    auto second = makeSession(plan);
    auto info = loadCheckpoint(*second, folder.path);
    ASSERT_TRUE(info.ok()) << info.status().message;
    EXPECT_EQ(info->updates, stopAt);
    EXPECT_EQ(second->samples(), stopAt);
    for (int i = stopAt; i < 12; ++i) {
      step(*second, 0);
      EXPECT_EQ(scalarState(*second, "param/w"), expected[static_cast<size_t>(i)])
          << "stopped at " << stopAt << ", step " << i;
    }
  }
}

// Case S7: Adam, constant gradient 1, resumed at step 11: the step is 1.0 * lr.
TEST(Checkpoint, RestoresTheCountForBiasCorrection) {
  TemporaryFolder folder;
  PlanPtr plan = adamPlan(0.5).read();
  auto first = makeSession(plan);
  for (int i = 0; i < 10; ++i)
    step(*first, 0);
  save(*first, folder.path);
  auto second = makeSession(plan);
  ASSERT_TRUE(loadCheckpoint(*second, folder.path).ok());
  float before = scalarState(*second, "param/w");
  step(*second, 0);
  EXPECT_NEAR((before - scalarState(*second, "param/w")) / 0.5, 1.0, 1e-5);
  // the wrong value: moments restored, count lost
  auto third = makeSession(plan);
  ASSERT_TRUE(loadCheckpoint(*third, folder.path).ok());
  third->resumeAt(0, 0, 0);
  before = scalarState(*third, "param/w");
  step(*third, 0);
  EXPECT_NEAR((before - scalarState(*third, "param/w")) / 0.5, 2.074, 1e-3);
}

static TestPlan twoParameters(const char *first, const char *second,
                              std::vector<int64_t> shape) {
  TestPlan p = scalarPlan(1, 1, 1);
  p.state(first, DType::f32, shape);
  p.state(second, DType::f32, shape);
  return p;
}

// Case S3: two parameters of one shape change places in the model: keyed by name.
TEST(Checkpoint, IsKeyedByNameNotByPlace) {
  TemporaryFolder folder;
  auto first = makeSession(twoParameters("param/a", "param/b", {2}).read());
  float a[2] = {1, 2}, b[2] = {3, 4}, read[2];
  ASSERT_TRUE(first->writeState("param/a", a, 8).ok());
  ASSERT_TRUE(first->writeState("param/b", b, 8).ok());
  save(*first, folder.path);
  auto second = makeSession(twoParameters("param/b", "param/a", {2}).read());
  ASSERT_TRUE(loadCheckpoint(*second, folder.path).ok());
  ASSERT_TRUE(second->readState("param/a", read, 8).ok());
  EXPECT_EQ(read[1], 2.0f);
  ASSERT_TRUE(second->readState("param/b", read, 8).ok());
  EXPECT_EQ(read[1], 4.0f);
}

TEST(Checkpoint, OfAnotherModelIsRefusedWithTheNames) {
  TemporaryFolder folder;
  save(*makeSession(twoParameters("param/a", "param/b", {2}).read()), folder.path);
  auto other = makeSession(twoParameters("param/a", "param/c", {2, 1}).read());
  float mark[2] = {8, 9}, read[2];
  ASSERT_TRUE(other->writeState("param/a", mark, 8).ok());
  auto info = loadCheckpoint(*other, folder.path);
  ASSERT_FALSE(info.ok());
  EXPECT_EQ(info.status().code, StatusCode::refused);
  for (const char *part : {"'param/a' is f32[2], the plan expects f32[2, 1]",
                           "'param/c' is missing", "'param/b' is not in the plan"})
    EXPECT_NE(info.status().message.find(part), std::string::npos)
        << info.status().message;
  ASSERT_TRUE(other->readState("param/a", read, 8).ok());
  EXPECT_EQ(read[0], 8.0f);
}

TEST(Checkpoint, KeepsTheLastTwo) {
  TemporaryFolder folder;
  auto session = makeSession(adamPlan(0.1).read());
  std::ofstream(folder.path + "/notes.txt") << "mine";
  std::ofstream(folder.path + "/step-00000001.safetensors.tmp-77") << "left over";
  for (int i = 1; i <= 4; ++i) {
    step(*session, 0);
    save(*session, folder.path);
  }
  EXPECT_EQ(listCheckpoints(folder.path), (std::vector<int64_t>{4, 3}));
  EXPECT_TRUE(fs::exists(folder.path + "/notes.txt"));
  EXPECT_FALSE(fs::exists(folder.path + "/step-00000001.safetensors.tmp-77"));
}

TEST(Checkpoint, TruncatedOneIsNamedAndSkipped) {
  TemporaryFolder folder;
  PlanPtr plan = adamPlan(0.1).read();
  auto session = makeSession(plan);
  step(*session, 0);
  save(*session, folder.path);
  step(*session, 0);
  std::string newest = save(*session, folder.path);
  auto bytes = fs::file_size(newest);
  for (uintmax_t size : {bytes - 1, bytes / 2, uintmax_t(9), uintmax_t(0)}) {
    fs::resize_file(newest, size);
    auto resumed = makeSession(plan);
    auto info = loadCheckpoint(*resumed, folder.path);
    ASSERT_TRUE(info.ok()) << info.status().message;
    EXPECT_EQ(info->updates, 1);
    ASSERT_EQ(info->notes.size(), 1u);
    EXPECT_NE(info->notes[0].find("step-00000002"), std::string::npos);
  }
  fs::remove(folder.path + "/step-00000001.safetensors");
  auto resumed = makeSession(plan);
  EXPECT_EQ(loadCheckpoint(*resumed, folder.path).status().code, StatusCode::damaged);
  fs::remove(newest);
  EXPECT_EQ(loadCheckpoint(*resumed, folder.path).status().code, StatusCode::refused);
}

// Case S8: killed at every write of a checkpoint, the previous one always loads.
TEST(Checkpoint, SurvivesADeathAtEveryWrite) {
  TestPlan p = adamPlan(0.1);
  p.state("param/large", DType::f32, {1 << 20}); // several writes
  PlanPtr plan = p.read();
  int deaths = 0;
  for (int dieAt = 1;; ++dieAt) {
    TemporaryFolder folder;
    auto session = makeSession(plan);
    step(*session, 0);
    save(*session, folder.path);
    float previous = scalarState(*session, "param/w");
    step(*session, 0);
    pid_t child = fork();
    if (child == 0) {
      CheckpointOptions options;
      options.observer = [&, calls = 0](const char *) mutable {
        if (++calls == dieAt)
          _exit(9);
      };
      auto saved = saveCheckpoint(*session, folder.path, options);
      _exit(saved.ok() ? 0 : 1);
    }
    int code = 0;
    waitpid(child, &code, 0);
    auto resumed = makeSession(plan);
    auto info = loadCheckpoint(*resumed, folder.path);
    ASSERT_TRUE(info.ok()) << info.status().message;
    if (WEXITSTATUS(code) == 0) {
      EXPECT_EQ(info->updates, 2);
      break;
    }
    ASSERT_EQ(WEXITSTATUS(code), 9);
    ++deaths;
    if (info->updates == 1) // not yet renamed
      EXPECT_EQ(scalarState(*resumed, "param/w"), previous);
  }
  EXPECT_GE(deaths, 9); // open, header, tensors in pieces, fsync, rename, folder
}

TEST(Checkpoint, FullDiskLeavesTheOldOne) {
  TemporaryFolder folder;
  PlanPtr plan = adamPlan(0.1).read();
  auto session = makeSession(plan);
  step(*session, 0);
  save(*session, folder.path);
  step(*session, 0);
  rlimit old = {};
  getrlimit(RLIMIT_FSIZE, &old);
  rlimit small = {200, old.rlim_max};
  auto formerHandler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  auto failed = saveCheckpoint(*session, folder.path);
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, formerHandler);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().code, StatusCode::refused);
  EXPECT_NE(failed.status().message.find("cannot write"), std::string::npos);
  auto resumed = makeSession(plan);
  ASSERT_TRUE(loadCheckpoint(*resumed, folder.path).ok());
  EXPECT_EQ(resumed->updates(), 1);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path), {}),
            1); // nothing left over
}

TEST(Checkpoint, UnwritableFolderIsAnError) {
  TemporaryFolder folder;
  std::ofstream(folder.path + "/file") << "x";
  auto session = makeSession(adamPlan(0.1).read());
  EXPECT_EQ(saveCheckpoint(*session, folder.path + "/file/sub").status().code,
            StatusCode::refused);
}

TEST(Checkpoint, InsideAWindowIsRefused) {
  TemporaryFolder folder;
  auto session = makeSession(scalarPlan(1, 2, 1).read());
  step(*session, 1);
  EXPECT_EQ(saveCheckpoint(*session, folder.path).status().code, StatusCode::usage);
  step(*session, 1);
  EXPECT_TRUE(saveCheckpoint(*session, folder.path).ok());
}

TEST(Checkpoint, WeightsAloneAreNoCheckpoint) {
  TemporaryFolder folder;
  float w = 1;
  TensorToWrite tensor = {"param/w", DType::f32, {}, &w, 4};
  std::string path = folder.path + "/step-00000003.safetensors";
  ASSERT_TRUE(writeSafetensors(path, {&tensor, 1}, {}).ok());
  auto session = makeSession(adamPlan(0.1).read());
  EXPECT_EQ(loadCheckpoint(*session, path).status().code, StatusCode::damaged);
}

} // namespace sluice::test
