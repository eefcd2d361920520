// State that ranks hold in shards: case S1, saved by 4 ranks and loaded by 6, 3 and 4,
// and by one that has all of it; in other forms too.

#include "TestPlan.h"

#include "runtime/Checkpoint.h"
#include "runtime/CheckpointShards.h"
#include "runtime/StateShard.h"
#include "runtime/StateTransfer.h"
#include "runtime/comm/LocalGroup.h"

#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <thread>

namespace sluice::test {
namespace {

using RankBody = std::function<void(Communicator &)>;

void onRanks(int ranks, const RankBody &body, CommOptions options = {}) {
  auto group = LocalGroup::create(ranks, options);
  std::vector<std::unique_ptr<Communicator>> ends;
  for (int rank = 0; rank < ranks; ++rank)
    ends.push_back(std::move(*(*group)->join(rank)));
  std::vector<std::thread> threads;
  for (auto &end : ends)
    threads.emplace_back([&body, &end] { body(*end); });
  for (std::thread &thread : threads)
    thread.join();
}

constexpr int64_t rows = 29, rowElements = 32, elements = rows * rowElements;

/// Makes a tensor of `whole` elements the part that a rank has of it.
void shard(TestPlan &p, const std::string &name, int64_t perRow) {
  fbs::StateTensorT &tensor = p.tensor(name);
  int64_t ranks = p.plan.ranks, most = (rows + ranks - 1) / ranks;
  tensor.whole = tensor.shape;
  tensor.shard_rows = rows;
  tensor.shape = {most, perRow};
  tensor.size =
      static_cast<uint64_t>(most * perRow) * dtypeSize(static_cast<DType>(tensor.dtype));
}

enum class Form { f32, int8 };

/// A weight in bf16 with a split master and one moment.
PlanPtr planOf(int64_t ranks, Form form = Form::f32) {
  TestPlan p = scalarPlan(4, 2, 0.25, 2);
  p.plan.ranks = ranks;
  p.state("param/large", DType::bf16, {58, 16});
  p.state("master/large/low", DType::i16, {58, 16}, fbs::Role::master);
  if (form == Form::f32) {
    p.state("opt/large/v", DType::f32, {58, 16}, fbs::Role::moment);
  } else {
    p.state("opt/large/v", DType::i8, {58, 16}, fbs::Role::moment);
    p.state("opt/large/v/scale", DType::f32, {rows}, fbs::Role::moment);
  }
  if (ranks > 1) {
    shard(p, "master/large/low", rowElements);
    shard(p, "opt/large/v", rowElements);
    if (form == Form::int8)
      shard(p, "opt/large/v/scale", 1);
  }
  return p.read();
}

float weight(int64_t i) { return 1.0f + static_cast<float>(i) / 3.0f; }
float moment(int64_t i) { return static_cast<float>(i * i) * 0x1p-20f + 1e-3f; }

std::vector<float> all(float (*value)(int64_t)) {
  std::vector<float> values;
  for (int64_t i = 0; i < elements; ++i)
    values.push_back(value(i));
  return values;
}

std::unique_ptr<Session> sessionOf(const PlanPtr &plan, Communicator *comm) {
  SessionOptions options;
  options.communicator = comm;
  return makeSession(plan, options);
}

void setValues(Session &session) {
  ASSERT_TRUE(session.writeParameter("large", all(weight)).ok());
  storeExact(session, *session.plan().state("opt/large/v"), all(moment));
  session.resumeAt(5, 50, 7);
}

/// The own part of a tensor as bytes.
std::string own(const Session &session, const std::string &name) {
  const fbs::StateTensor &tensor = *session.plan().state(name);
  ElementRange range = ownElements(session.plan(), tensor, session.rank());
  auto bytes = session.state(name);
  return {reinterpret_cast<const char *>(bytes.data()),
          (range.end - range.begin) * dtypeSize(static_cast<DType>(tensor.dtype()))};
}

/// That of a session that has all.
std::string part(const Session &whole, const Session &session, const std::string &name) {
  const fbs::StateTensor &tensor = *session.plan().state(name);
  ElementRange range = ownElements(session.plan(), tensor, session.rank());
  uint64_t each = dtypeSize(static_cast<DType>(tensor.dtype()));
  auto bytes = whole.state(name);
  return std::string(bytes.begin(), bytes.end())
      .substr(range.begin * each, (range.end - range.begin) * each);
}

void saveFrom(int ranks, const std::string &folder, Form form) {
  PlanPtr plan = planOf(ranks, form);
  ASSERT_TRUE(plan);
  onRanks(ranks, [&](Communicator &comm) {
    auto session = sessionOf(plan, &comm);
    setValues(*session);
    auto path = saveCheckpoint(*session, folder);
    EXPECT_TRUE(path.ok()) << path.status().message;
  });
}

void expectLoads(int ranks, const std::string &folder, Form form,
                 const Session &reference) {
  PlanPtr plan = planOf(ranks, form);
  ASSERT_TRUE(plan);
  onRanks(ranks, [&](Communicator &comm) {
    auto session = sessionOf(plan, ranks > 1 ? &comm : nullptr);
    auto info = loadCheckpoint(*session, folder);
    ASSERT_TRUE(info.ok()) << info.status().message;
    EXPECT_EQ(info->updates, 5);
    EXPECT_EQ(info->samples, 50);
    for (const fbs::StateTensor *tensor : *plan->raw().state())
      if (std::string name = tensor->name()->str();
          name.find("large") != std::string::npos)
        EXPECT_TRUE(own(*session, name) == part(reference, *session, name))
            << name << " on rank " << comm.rank() << " of " << ranks;
    Status same = session->agreeOnState();
    EXPECT_TRUE(same.ok()) << same.message;
  });
}

class Forms : public testing::TestWithParam<Form> {};

TEST_P(Forms, SavedByFourLoadedByOthers) {
  TemporaryFolder folder;
  auto reference = sessionOf(planOf(1, GetParam()), nullptr);
  setValues(*reference);
  saveFrom(4, folder.path, GetParam());
  for (int ranks : {6, 3, 4, 1})
    expectLoads(ranks, folder.path, GetParam(), *reference);
}

TEST_P(Forms, AWholeCheckpointLoadsIntoShards) {
  TemporaryFolder folder;
  auto reference = sessionOf(planOf(1, GetParam()), nullptr);
  setValues(*reference);
  ASSERT_TRUE(saveCheckpoint(*reference, folder.path).ok());
  for (int ranks : {2, 3})
    expectLoads(ranks, folder.path, GetParam(), *reference);
}

INSTANTIATE_TEST_SUITE_P(StateShards, Forms, testing::Values(Form::f32, Form::int8),
                         [](const auto &info) {
                           return info.param == Form::f32 ? "F32" : "Int8";
                         });

TEST(StateShards, MomentsOfOneFormLoadIntoAnother) {
  TemporaryFolder folder;
  saveFrom(4, folder.path, Form::f32);
  // What one rank makes of the same checkpoint.
  auto reference = sessionOf(planOf(1, Form::int8), nullptr);
  ASSERT_TRUE(loadCheckpoint(*reference, folder.path).ok());
  expectLoads(3, folder.path, Form::int8, *reference);
}

TEST(StateShards, ExactWeightsComeFromTheCheckpoint) {
  TemporaryFolder folder;
  saveFrom(4, folder.path, Form::f32);
  auto session = sessionOf(planOf(4), nullptr);
  auto info = loadCheckpoint(*session, folder.path);
  ASSERT_TRUE(info.ok()) << info.status().message;
  const fbs::StateTensor &tensor = *session->plan().state("param/large");
  EXPECT_TRUE(hasSharedMaster(session->plan(), tensor));
  EXPECT_FALSE(storedTensor(*session, tensor).form.isExact());
  auto file = openWithShards(info->path);
  ASSERT_TRUE(file.ok());
  StateSource source = findSource(session->plan(), tensor, *file, "param/large");
  EXPECT_EQ(valuesOf(source, *file), all(weight));
  // Alone it has no whole checkpoint to write.
  auto path = saveCheckpoint(*session, folder.path + "/alone");
  ASSERT_FALSE(path.ok());
  EXPECT_NE(path.status().message.find("hold parts of its state"), std::string::npos)
      << path.status().message;
}

TEST(StateShards, AMissingSliceIsDamage) {
  TemporaryFolder folder;
  float values[4] = {1, 2, 3, 4};
  std::vector<SafetensorsFile> parts;
  auto write = [&](const std::string &name, const std::string &slice, int64_t count) {
    std::string path = folder.path + "/" + name;
    std::vector<TensorToWrite> tensors = {
        {"a", DType::f32, {count}, values, static_cast<uint64_t>(4 * count)}};
    EXPECT_TRUE(writeSafetensors(path, tensors, {{sliceKey("a"), slice}}).ok());
    return *SafetensorsFile::open(path);
  };
  auto statusOf = [&](const std::string &first, const std::string &second) {
    EXPECT_TRUE(writeSafetensors(folder.path + "/list", {}, {}).ok());
    parts.clear();
    parts.push_back(write("0", first, 2));
    parts.push_back(write("1", second, 4));
    auto list = SafetensorsFile::open(folder.path + "/list");
    auto file = SafetensorsFile::joined(std::move(*list), std::move(parts));
    return file.ok() ? std::string() : file.status().message;
  };
  EXPECT_EQ(statusOf("0 2x3", "2 2x3"), "");
  for (auto [first, second, message] :
       {std::tuple("0 2x3", "3 2x3", "are not the whole"),
        std::tuple("0 2x3", "1 2x3", "are not the whole"),
        std::tuple("0 2x4", "2 2x4", "are not the whole"),
        std::tuple("0 2x3", "2 3x2", "differ in type or shape"),
        std::tuple("0 2x3", "2", "unclear"), std::tuple("0 2x3", "-2 2x3", "unclear"),
        std::tuple("0 2x3", "2 2x", "unclear"), std::tuple("0 2x3", "2 2x3 ", "unclear"),
        std::tuple("0 2x3", "2 4294967296x4294967296", "unclear")})
    EXPECT_NE(statusOf(first, second).find(message), std::string::npos)
        << second << ": " << statusOf(first, second);
}

struct Rule {
  const char *name;
  void (*breakIt)(TestPlan &p);
  const char *message;
};

const Rule rules[] = {
    {"NoRanks", [](auto &p) { p.plan.ranks = 1; }, "cannot be in shards"},
    {"Role", [](auto &p) { p.tensor("m").role = fbs::Role::buffer; },
     "cannot be in shards"},
    {"FewRows", [](auto &p) { p.tensor("m").shard_rows = 1; }, "cannot be in shards"},
    {"NegativeRows", [](auto &p) { p.tensor("m").shard_rows = -4; },
     "cannot be in shards"},
    {"Rows", [](auto &p) { p.tensor("m").shard_rows = 3; }, "which is no shard of"},
    {"Whole", [](auto &p) { p.tensor("m").whole = {16}; }, "which is no shard of"},
    {"Malformed", [](auto &p) { p.tensor("m").whole = {-8}; }, "cannot be in shards"},
    {"NoRows", [](auto &p) { p.tensor("m").shard_rows = 0; }, "cannot be in shards"},
};

class BrokenShards : public testing::TestWithParam<Rule> {};

TEST_P(BrokenShards, AreRefused) {
  TestPlan p = scalarPlan(4, 2, 0.25, 2);
  p.plan.ranks = 2;
  p.state("m", DType::f32, {2, 2}, fbs::Role::moment);
  p.tensor("m").whole = {8};
  p.tensor("m").shard_rows = 4;
  auto sound = PlanReader::readMemory(p.file(), "x.plan");
  ASSERT_TRUE(sound.ok()) << sound.status().message;
  GetParam().breakIt(p);
  auto plan = PlanReader::readMemory(p.file(), "x.plan");
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.status().message.find(GetParam().message), std::string::npos)
      << plan.status().message;
}

INSTANTIATE_TEST_SUITE_P(Rules, BrokenShards, testing::ValuesIn(rules),
                         [](const auto &info) { return std::string(info.param.name); });

// Nobody times out while one rank writes for longer than the timeout.
TEST(StateShards, ALongWriteIsWaitedFor) {
  TemporaryFolder folder;
  CommOptions patient;
  patient.timeout = std::chrono::milliseconds(3000);
  onRanks(
      3,
      [&](Communicator &comm) {
        TestPlan p = scalarPlan(4, 2, 0.25, 2);
        p.plan.ranks = 3;
        p.plan.timeout_s = 0.2; // so often they meet
        auto session = sessionOf(p.read(), &comm);
        CheckpointOptions options;
        options.byAllRanks = true;
        bool isFirst = comm.rank() == 1;
        options.observer = [&](const char *) {
          if (std::exchange(isFirst, false))
            std::this_thread::sleep_for(std::chrono::milliseconds(4000));
        };
        auto path = saveCheckpoint(*session, folder.path, options);
        EXPECT_TRUE(path.ok()) << path.status().message;
      },
      patient);
}

} // namespace
} // namespace sluice::test
