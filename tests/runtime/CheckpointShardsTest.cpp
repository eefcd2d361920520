// Checkpoints that several ranks write together.

#include "TestPlan.h"

#include "runtime/Checkpoint.h"
#include "runtime/CheckpointShards.h"
#include "runtime/Trainer.h"
#include "runtime/comm/LocalGroup.h"

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <set>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace sluice::test {
namespace {

namespace fs = std::filesystem;

using RankBody = std::function<void(Communicator &)>;

void onRanks(int ranks, const RankBody &body) {
  auto group = LocalGroup::create(ranks);
  std::vector<std::unique_ptr<Communicator>> ends;
  for (int rank = 0; rank < ranks; ++rank)
    ends.push_back(std::move(*(*group)->join(rank)));
  std::vector<std::thread> threads;
  for (auto &end : ends)
    threads.emplace_back([&body, &end] { body(*end); });
  for (std::thread &thread : threads)
    thread.join();
}

PlanPtr planOf(int64_t ranks) {
  TestPlan p = scalarPlan(4, 2, 0.25, 2);
  p.state("param/large", DType::f32, {1 << 19}); // several writes
  p.state("param/small", DType::f32, {3});
  p.plan.ranks = ranks;
  return p.read();
}

/// One that trains: sums of a window are reduced before its update.
PlanPtr trainingPlan(int64_t ranks) {
  TestPlan p = scalarPlan(4, 2, 0.25, 2);
  p.plan.ranks = ranks;
  for (auto &program : p.plan.programs) {
    if (program->name != "update")
      continue;
    auto collective = std::make_unique<fbs::CollectiveT>();
    for (const char *name : {"grad/w", "grad/count"}) {
      auto part = std::make_unique<fbs::CollectivePartT>();
      part->name = name;
      part->from_offset = part->to_offset = p.tensor(name).offset;
      part->size = p.tensor(name).size;
      collective->parts.push_back(std::move(part));
    }
    program->collectives.push_back(std::move(collective));
    program->launches[0]->wait_collectives = 1;
  }
  return p.read();
}

std::vector<float> large() {
  std::vector<float> values(1 << 19);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i % 1000) * 0.25f;
  return values;
}

/// At update `step`, the same on every rank.
std::unique_ptr<Session> sessionAt(int64_t step, const PlanPtr &plan,
                                   Communicator *comm) {
  SessionOptions options;
  options.communicator = comm;
  auto session = makeSession(plan, options);
  if (!session)
    return nullptr;
  float small[3] = {1, 2, static_cast<float>(step)};
  std::vector<float> values = large();
  EXPECT_TRUE(session->writeState("param/small", small, sizeof small).ok());
  EXPECT_TRUE(session->writeState("param/large", values.data(), 4 * values.size()).ok());
  session->resumeAt(step, 10 * step, 7);
  return session;
}

/// What each rank gets.
std::vector<Status> saveTogether(int ranks, int64_t step, const std::string &folder,
                                 const AtomicFile::Observer &observer = {}) {
  PlanPtr plan = planOf(ranks);
  std::vector<Status> results(static_cast<size_t>(ranks));
  onRanks(ranks, [&](Communicator &comm) {
    auto session = sessionAt(step, plan, &comm);
    CheckpointOptions options;
    options.byAllRanks = true;
    options.observer = observer;
    auto path = saveCheckpoint(*session, folder, options);
    results[static_cast<size_t>(comm.rank())] = path ? Status::success() : path.status();
  });
  return results;
}

void expectSaved(int ranks, int64_t step, const std::string &folder) {
  for (const Status &status : saveTogether(ranks, step, folder))
    EXPECT_TRUE(status.ok()) << status.message;
}

void expectLoads(const std::string &folder, int64_t step) {
  auto session = makeSession(planOf(1));
  auto info = loadCheckpoint(*session, folder);
  ASSERT_TRUE(info.ok()) << info.status().message;
  EXPECT_EQ(info->updates, step);
  EXPECT_EQ(info->samples, 10 * step);
  std::vector<float> values(1 << 19);
  float small[3] = {};
  ASSERT_TRUE(session->readState("param/large", values.data(), 4 * values.size()).ok());
  ASSERT_TRUE(session->readState("param/small", small, sizeof small).ok());
  EXPECT_TRUE(values == large());
  EXPECT_EQ(small[2], static_cast<float>(step));
}

std::vector<std::string> filesOf(const std::string &folder) {
  std::vector<std::string> names;
  for (const auto &entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

} // namespace

TEST(CheckpointShards, LoadIntoAnyNumberOfRanks) {
  for (int ranks : {2, 3}) {
    TemporaryFolder folder;
    expectSaved(ranks, 5, folder.path);
    expectLoads(folder.path, 5);
    PlanPtr plan = planOf(2);
    onRanks(2, [&](Communicator &comm) {
      SessionOptions options;
      options.communicator = &comm;
      auto session = makeSession(plan, options);
      auto info = loadCheckpoint(*session, folder.path);
      ASSERT_TRUE(info.ok()) << info.status().message;
      Status same = session->agreeOnState();
      EXPECT_TRUE(same.ok()) << same.message;
      EXPECT_EQ(session->updates(), 5);
    });
  }
}

TEST(CheckpointShards, EveryTensorIsInOnePart) {
  TemporaryFolder folder;
  expectSaved(2, 5, folder.path);
  EXPECT_EQ(filesOf(folder.path),
            (std::vector<std::string>{"step-00000005.rank-0-of-2.0.safetensors",
                                      "step-00000005.rank-1-of-2.0.safetensors",
                                      "step-00000005.safetensors"}));
  std::set<std::string> seen;
  uint64_t largest = 0;
  for (const std::string &name : filesOf(folder.path)) {
    auto file = SafetensorsFile::open(folder.path + "/" + name);
    ASSERT_TRUE(file.ok()) << file.status().message;
    for (const TensorEntry &entry : file->tensors()) {
      EXPECT_TRUE(seen.insert(entry.name).second) << entry.name;
      // Whoever has the large one has nothing else.
      if (entry.name == "param/large")
        largest = file->tensors().size();
    }
  }
  EXPECT_EQ(largest, 1u);
  EXPECT_TRUE(seen.contains("param/small"));
}

TEST(CheckpointShards, WeightsComeFromTheList) {
  TemporaryFolder folder;
  expectSaved(2, 5, folder.path);
  auto session = makeSession(planOf(1));
  Status status = session->loadWeights(folder.path + "/step-00000005.safetensors");
  ASSERT_TRUE(status.ok()) << status.message;
  float small[3] = {};
  ASSERT_TRUE(session->readState("param/small", small, sizeof small).ok());
  EXPECT_EQ(small[2], 5);
}

// Whichever write of whichever rank is the last one.
TEST(CheckpointShards, SurviveADeathAtEveryWrite) {
  int deaths = 0;
  for (int dieAt = 1;; ++dieAt) {
    TemporaryFolder folder;
    expectSaved(2, 1, folder.path);
    pid_t child = fork();
    if (child == 0) {
      std::atomic<int> calls{0};
      // The same step too: a new attempt must not touch the parts of the old one.
      auto results = saveTogether(2, dieAt % 2 ? 2 : 1, folder.path, [&](const char *) {
        if (++calls == dieAt)
          _exit(9);
      });
      _exit(results[0].ok() && results[1].ok() ? 0 : 1);
    }
    int code = 0;
    waitpid(child, &code, 0);
    if (WEXITSTATUS(code) == 0) {
      expectLoads(folder.path, dieAt % 2 ? 2 : 1);
      break;
    }
    ASSERT_EQ(WEXITSTATUS(code), 9);
    // The list may be there just before its last call.
    auto session = makeSession(planOf(1));
    auto info = loadCheckpoint(*session, folder.path);
    ASSERT_TRUE(info.ok()) << info.status().message;
    expectLoads(folder.path, info->updates);
    ++deaths;
    // What was left is gone after the next one.
    expectSaved(2, 3, folder.path);
    expectLoads(folder.path, 3);
    for (const std::string &name : filesOf(folder.path))
      EXPECT_EQ(name.find(".tmp-"), std::string::npos) << name;
    EXPECT_LE(filesOf(folder.path).size(), 6u);
  }
  EXPECT_GE(deaths, 10);
}

TEST(CheckpointShards, PartsGoWithTheirList) {
  TemporaryFolder folder;
  for (int64_t step : {1, 2, 3, 3})
    expectSaved(2, step, folder.path);
  EXPECT_EQ(filesOf(folder.path),
            (std::vector<std::string>{
                "step-00000002.rank-0-of-2.0.safetensors",
                "step-00000002.rank-1-of-2.0.safetensors", "step-00000002.safetensors",
                "step-00000003.rank-0-of-2.1.safetensors",
                "step-00000003.rank-1-of-2.1.safetensors", "step-00000003.safetensors"}));
}

TEST(CheckpointShards, ADamagedOrMissingPartIsNamedAndTheOlderOneLoads) {
  TemporaryFolder folder;
  expectSaved(2, 1, folder.path);
  expectSaved(2, 2, folder.path);
  std::string part = folder.path + "/step-00000002.rank-1-of-2.0.safetensors";
  std::string older = folder.path + "/step-00000001.rank-1-of-2.0.safetensors";
  auto expectSkipped = [&](const char *why) {
    auto session = makeSession(planOf(1));
    auto info = loadCheckpoint(*session, folder.path);
    ASSERT_TRUE(info.ok()) << info.status().message;
    EXPECT_EQ(info->updates, 1);
    ASSERT_EQ(info->notes.size(), 1u);
    EXPECT_NE(info->notes[0].find(why), std::string::npos) << info->notes[0];
  };
  fs::copy_file(part, folder.path + "/kept");
  {
    std::fstream file(part, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('x');
  }
  expectSkipped("checksum does not match");
  fs::remove(part);
  expectSkipped("lacks a part");
  fs::copy_file(older, part);
  expectSkipped("belongs to another checkpoint");
  fs::remove(part);
  fs::rename(folder.path + "/kept", part);
  expectLoads(folder.path, 2);
}

TEST(CheckpointShards, TrainingWritesThemAndGoesOnFromThem) {
  PlanPtr plan = trainingPlan(2);
  TemporaryFolder folder;
  float ends[2] = {};
  auto run = [&](int64_t steps, bool resumes, float &end) {
    onRanks(2, [&](Communicator &comm) {
      SessionOptions options;
      options.communicator = &comm;
      auto session = makeSession(plan, options);
      FloatSource source({3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2}, 4);
      TrainOptions training;
      training.steps = steps;
      training.resume = resumes;
      training.checkpoint.byAllRanks = true;
      if (steps == 6 || resumes) {
        training.checkpointFolder = folder.path;
        training.checkpointEvery = 2;
      }
      auto summary = train(*session, source, nullptr, training);
      ASSERT_TRUE(summary.ok()) << summary.status().message;
      if (comm.rank() == 0)
        end = scalarState(*session, "param/w");
    });
  };
  run(6, false, ends[0]);
  EXPECT_EQ(listCheckpoints(folder.path), (std::vector<int64_t>{6, 4}));
  EXPECT_EQ(filesOf(folder.path).size(), 6u);
  run(12, true, ends[0]);
  run(12, false, ends[1]);
  EXPECT_EQ(ends[0], ends[1]);
  EXPECT_NE(ends[0], 0);
}

TEST(CheckpointShards, NeedSeveralRanks) {
  auto session = makeSession(planOf(1));
  FloatSource source({3, 1, 4, 1}, 4);
  TrainOptions training;
  training.steps = 1;
  training.checkpoint.byAllRanks = true;
  EXPECT_EQ(train(*session, source, nullptr, training).status().code, StatusCode::usage);
}

TEST(CheckpointShards, OneRanksFailureIsThatOfAll) {
  TemporaryFolder folder;
  expectSaved(2, 1, folder.path);
  std::string path = folder.path + "/step-00000002.safetensors";
  onRanks(2, [&](Communicator &comm) {
    Status prepared = comm.rank() == 1 ? Status::refused("no room") : Status::success();
    Status status = saveShards(comm, path, 2, {}, {}, {}, prepared);
    EXPECT_EQ(status.code, StatusCode::refused);
    EXPECT_EQ(status.message, comm.rank() == 1 ? "no room" : "rank 1 of 2: no room");
  });
  EXPECT_EQ(filesOf(folder.path).size(), 3u);
}

TEST(CheckpointShards, FoldersThatAreNotSharedAreRefusedOnAll) {
  TemporaryFolder first, second;
  onRanks(2, [&](Communicator &comm) {
    const std::string &folder = comm.rank() == 0 ? first.path : second.path;
    Status status = saveShards(comm, folder + "/step-00000002.safetensors", 2, {}, {}, {},
                               Status::success());
    EXPECT_EQ(status.code, StatusCode::refused);
    EXPECT_NE(status.message.find("rank 1 has written "
                                  "'step-00000002.rank-1-of-2.0.safetensors', but rank "
                                  "0 does not find it"),
              std::string::npos)
        << status.message;
  });
  EXPECT_TRUE(filesOf(first.path).empty());
  EXPECT_TRUE(filesOf(second.path).empty());
}

} // namespace sluice::test
