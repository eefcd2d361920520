// A checkpoint, or weights, of one form into a plan of another (law 5).

#include "TestPlan.h"

#include "runtime/Checkpoint.h"
#include "runtime/Safetensors.h"
#include "runtime/StateTransfer.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <random>
#include <sys/wait.h>
#include <unistd.h>

namespace sluice::test {

namespace {

constexpr StoredForm f32Form = {DType::f32, Completion::nothing},
                     split = {DType::bf16, Completion::low},
                     master = {DType::bf16, Completion::master},
                     halfMaster = {DType::f16, Completion::master},
                     alone = {DType::bf16, Completion::nothing};

void addParameter(TestPlan &p, const std::string &name, StoredForm form,
                  std::vector<int64_t> shape) {
  p.state("param/" + name, form.dtype, shape);
  if (form.completion == Completion::low)
    p.state("master/" + name + "/low", DType::i16, shape, fbs::Role::master);
  if (form.completion == Completion::master)
    p.state("master/" + name, DType::f32, shape, fbs::Role::master);
}

/// The scalar plan with a matrix stored in this form, its moment and a counter.
TestPlan formPlan(StoredForm form, DType moment = DType::f32,
                  std::vector<int64_t> shape = {3, 5}) {
  TestPlan p = scalarPlan(1, 1, 0.25, 2);
  addParameter(p, "a", form, shape);
  p.state("opt/a/m", moment, shape, fbs::Role::moment);
  p.state("param/a/count", DType::i64, {}, fbs::Role::buffer);
  return p;
}

std::vector<float> someValues() {
  auto of = [](uint32_t bits) { return std::bit_cast<float>(bits); };
  return {1,     -0.0f,          of(0x3f808000), of(0xbf818000), of(0x3f807fff),
          of(1), of(0x807fffff), of(0x7f7fffff), of(0x7f800000), of(0xff800000),
          0.1f,  -3.3333333f,    1e-30f,         of(0x00018000), 12345.678f};
}

std::vector<uint32_t> bits(const std::vector<float> &values) {
  std::vector<uint32_t> result;
  for (float value : values)
    result.push_back(std::bit_cast<uint32_t>(value));
  return result;
}

std::vector<float> parameter(const Session &session, const char *name = "a",
                             size_t count = 15) {
  std::vector<float> values(count);
  Status status = session.readParameter(name, values);
  EXPECT_TRUE(status.ok()) << status.message;
  return values;
}

std::unique_ptr<Session> filled(const TestPlan &p) {
  auto session = makeSession(p.read());
  EXPECT_TRUE(session->writeParameter("a", someValues()).ok());
  int64_t count = 77;
  EXPECT_TRUE(session->writeState("param/a/count", &count, 8).ok());
  return session;
}

std::string saved(const Session &session, const std::string &folder) {
  auto path = saveCheckpoint(session, folder);
  EXPECT_TRUE(path.ok()) << path.status().message;
  return path.ok() ? *path : std::string();
}

std::vector<std::string> load(Session &session, const std::string &folder) {
  auto info = loadCheckpoint(session, folder);
  EXPECT_TRUE(info.ok()) << info.status().message;
  return info.ok() ? info->notes : std::vector<std::string>();
}

std::vector<uint8_t> allState(const Session &session) {
  std::vector<uint8_t> bytes;
  for (const fbs::StateTensor *tensor : *session.plan().raw().state()) {
    auto data = session.state(viewOf(tensor->name()));
    bytes.insert(bytes.end(), data.begin(), data.end());
  }
  return bytes;
}

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

/// What a model that was trained elsewhere has: one tensor of a 16-bit type.
std::string writeWeights(const std::string &folder,
                         const std::vector<TensorToWrite> &tensors) {
  std::string path = folder + "/weights.safetensors";
  EXPECT_TRUE(writeSafetensors(path, tensors, {}).ok());
  return path;
}

} // namespace

TEST(StateTransfer, ExactFormsLoadIntoEachOtherBitForBit) {
  for (StoredForm from : {f32Form, split, master, halfMaster})
    for (StoredForm to : {f32Form, split, master, halfMaster}) {
      TemporaryFolder folder;
      auto first = filled(formPlan(from));
      saved(*first, folder.path);
      auto second = makeSession(formPlan(to).read()), direct = filled(formPlan(to));
      std::vector<std::string> notes = load(*second, folder.path);
      EXPECT_EQ(bits(parameter(*second)), bits(someValues()));
      EXPECT_EQ(allState(*second), allState(*direct))
          << formText(from) << " to " << formText(to);
      if (from == to) {
        EXPECT_TRUE(notes.empty());
        continue;
      }
      ASSERT_EQ(notes.size(), 1u);
      EXPECT_TRUE(contains(notes[0], "1 parameter stored as " + formText(from) +
                                         " became " + formText(to) +
                                         ", no value rounded: 'a'"))
          << notes[0];
    }
}

TEST(StateTransfer, ThereAndBackIsTheSameFile) {
  TemporaryFolder there, back;
  std::string before = saved(*filled(formPlan(f32Form)), there.path);
  auto narrow = makeSession(formPlan(split).read());
  load(*narrow, there.path);
  saved(*narrow, back.path);
  auto wide = makeSession(formPlan(f32Form).read());
  load(*wide, back.path);
  auto read = [](const std::string &path) {
    std::ifstream stream(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  TemporaryFolder last;
  EXPECT_EQ(read(before), read(saved(*wide, last.path)));
}

TEST(StateTransfer, WithoutAMasterRoundsToNearestAndSaysSo) {
  TemporaryFolder folder;
  saved(*filled(formPlan(split)), folder.path);
  auto session = makeSession(formPlan(alone).read());
  std::vector<std::string> notes = load(*session, folder.path);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(contains(notes[0], "became bf16 without a master"));
  EXPECT_TRUE(contains(notes[0], "11 of 15 values were rounded")) << notes[0];
  std::vector<float> values = parameter(*session);
  EXPECT_EQ(std::bit_cast<uint32_t>(values[2]), 0x3f800000u); // ties to even
  EXPECT_EQ(std::bit_cast<uint32_t>(values[3]), 0xbf820000u);
}

TEST(StateTransfer, FromNoMasterTakesTheRoundedValueAndSaysSo) {
  TemporaryFolder folder;
  auto first = filled(formPlan(alone));
  saved(*first, folder.path);
  for (StoredForm to : {f32Form, split, master}) {
    auto session = makeSession(formPlan(to).read());
    std::vector<std::string> notes = load(*session, folder.path);
    ASSERT_EQ(notes.size(), 1u);
    EXPECT_TRUE(contains(notes[0], "1 parameter stored as bf16 without a master became " +
                                       formText(to) +
                                       "; the f32 is the rounded value: 'a'"))
        << notes[0];
    EXPECT_EQ(bits(parameter(*session)), bits(parameter(*first)));
  }
}

TEST(StateTransfer, ConvertsMoments) {
  TemporaryFolder wide, narrow;
  auto first = makeSession(formPlan(f32Form).read());
  std::vector<float> values = someValues(), read(15);
  ASSERT_TRUE(first->writeState("opt/a/m", values.data(), 60).ok());
  saved(*first, wide.path);
  auto second = makeSession(formPlan(f32Form, DType::bf16).read());
  std::vector<std::string> notes = load(*second, wide.path);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(contains(notes[0], "1 moment stored as f32 became bf16; 11 of 15 values "
                                 "were rounded: 'opt/a/m'"))
      << notes[0];
  saved(*second, narrow.path);
  notes = load(*first, narrow.path);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(contains(notes[0], "stored as bf16 became f32, no value rounded"));
  ASSERT_TRUE(first->readState("opt/a/m", read.data(), 60).ok());
  EXPECT_EQ(read[0], 1.0f);
  EXPECT_EQ(std::bit_cast<uint32_t>(read[2]), 0x3f800000u);
}

/// The moments of a matrix as codes, with `blocks` scales; as f32 where there are none.
static TestPlan codePlan(int64_t blocks) {
  TestPlan p = scalarPlan(1, 1, 1);
  for (const char *name : {"opt/a/m", "opt/a/v"}) {
    p.state(name, blocks ? DType::i8 : DType::f32, {8, 16}, fbs::Role::moment);
    if (blocks)
      p.state(std::string(name) + "/scale", DType::f32, {blocks}, fbs::Role::moment);
  }
  return p;
}

TEST(StateTransfer, ConvertsMomentsOfEightBits) {
  std::vector<float> values(128), read(128);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = 0.01f * static_cast<float>(i % 50) - 0.2f;
  TemporaryFolder folder, back;
  auto wide = makeSession(codePlan(0).read());
  ASSERT_TRUE(wide->writeState("opt/a/m", values.data(), 512).ok());
  for (float &value : values)
    value = std::fabs(value);
  ASSERT_TRUE(wide->writeState("opt/a/v", values.data(), 512).ok());
  saved(*wide, folder.path);
  auto codes = makeSession(codePlan(4).read());
  std::vector<std::string> notes = load(*codes, folder.path);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(contains(notes[0], "2 moments stored as f32 became int8 in blocks of 32"))
      << notes[0];
  saved(*codes, back.path);
  load(*wide, back.path);
  ASSERT_TRUE(wide->readState("opt/a/v", read.data(), 512).ok());
  for (size_t i = 0; i < values.size(); ++i) // a map without signs: half the error
    EXPECT_NEAR(read[i], values[i], 0.3f * 0.9f / 256 + 1e-6f);
  ASSERT_TRUE(wide->readState("opt/a/m", read.data(), 512).ok());
  EXPECT_NEAR(read[0], -0.2f, 0.3f * 0.9f / 128);

  auto same = makeSession(codePlan(4).read()), other = makeSession(codePlan(2).read());
  EXPECT_TRUE(load(*same, back.path).empty());
  EXPECT_EQ(allState(*same), allState(*codes));
  notes = load(*other, back.path);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(contains(notes[0], "int8 in blocks of 32 became int8 in blocks of 64"));
}

TEST(StateTransfer, CodesWithoutScalesAreRefused) {
  TemporaryFolder folder;
  TestPlan p = scalarPlan(1, 1, 1);
  for (const char *name : {"opt/a/m", "opt/a/v"})
    p.state(name, DType::i8, {8, 16}, fbs::Role::moment);
  saved(*makeSession(p.read()), folder.path);
  for (int64_t blocks : {0, 4}) {
    auto session = makeSession(codePlan(blocks).read());
    auto info = loadCheckpoint(*session, folder.path);
    ASSERT_FALSE(info.ok());
    EXPECT_TRUE(contains(info.status().message,
                         blocks ? "'opt/a/m' has codes without scales of whole blocks"
                                : "'opt/a/m' is i8[8, 16], the plan expects f32[8, 16]"))
        << info.status().message;
  }
}

TEST(StateTransfer, NamesThreeAndCountsTheRest) {
  TestPlan from = scalarPlan(1, 1, 1), to = scalarPlan(1, 1, 1);
  for (const char *name : {"a", "b", "c", "d", "e"}) {
    addParameter(from, name, f32Form, {2});
    addParameter(to, name, split, {2});
  }
  TemporaryFolder folder;
  saved(*makeSession(from.read()), folder.path);
  auto session = makeSession(to.read());
  std::vector<std::string> notes = load(*session, folder.path);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(contains(notes[0], "5 parameters stored as f32")) << notes[0];
  EXPECT_TRUE(contains(notes[0], "'a', 'b', 'c' and 2 more"));
}

TEST(StateTransfer, AnotherShapeIsRefusedByNameAndChangesNothing) {
  TemporaryFolder folder;
  saved(*makeSession(formPlan(split, DType::f32, {5, 3}).read()), folder.path);
  auto session = filled(formPlan(f32Form));
  std::vector<uint8_t> before = allState(*session);
  auto info = loadCheckpoint(*session, folder.path);
  ASSERT_FALSE(info.ok());
  EXPECT_TRUE(contains(info.status().message,
                       "'param/a' is bf16[5, 3], the plan expects f32[3, 5]"))
      << info.status().message;
  EXPECT_EQ(allState(*session), before);
}

TEST(StateTransfer, ACompletionOfAnotherShapeOrWithoutItsTensorIsRefused) {
  std::vector<uint8_t> room(64);
  Metadata metadata = {
      {"format", "sluice-checkpoint-1"}, {"step", "1"}, {"samples", "1"}, {"seed", "1"}};
  auto session = filled(formPlan(split));
  std::vector<uint8_t> before = allState(*session);
  auto refusal = [&](const std::string &name, std::vector<int64_t> shape, DType type,
                     uint64_t bytes) {
    TemporaryFolder folder;
    std::string path = folder.path + "/step-00000001.safetensors";
    std::vector<TensorToWrite> tensors = {
        {"param/w", DType::f32, {}, room.data(), 4},
        {"param/a", DType::bf16, {3, 5}, room.data(), 30},
        {"param/a/count", DType::i64, {}, room.data(), 8},
        {"opt/a/m", DType::f32, {3, 5}, room.data(), 60},
        {name, type, shape, room.data(), bytes}};
    EXPECT_TRUE(writeSafetensors(path, tensors, metadata).ok());
    auto info = loadCheckpoint(*session, path);
    EXPECT_FALSE(info.ok());
    EXPECT_EQ(allState(*session), before);
    return info.ok() ? std::string() : info.status().message;
  };
  EXPECT_TRUE(contains(refusal("master/a/low", {15}, DType::i16, 30),
                       "'master/a/low' is i16[15], the plan expects i16[3, 5]"));
  EXPECT_TRUE(contains(refusal("master/a", {1}, DType::f32, 4),
                       "'master/a' is f32[1], the plan expects f32[3, 5]"));
  EXPECT_TRUE(contains(refusal("master/a/low", {3, 5}, DType::i8, 15),
                       "'master/a/low' is not in the plan"));
  EXPECT_TRUE(contains(refusal("master/b", {3, 5}, DType::f32, 60),
                       "'master/b' is not in the plan"));
}

TEST(StateTransfer, IntegersAreNeverConverted) {
  TemporaryFolder folder;
  TestPlan p = scalarPlan(1, 1, 1), other = scalarPlan(1, 1, 1);
  p.state("param/n", DType::i64, {2}, fbs::Role::buffer);
  other.state("param/n", DType::f32, {2}, fbs::Role::buffer);
  saved(*makeSession(p.read()), folder.path);
  auto session = makeSession(other.read());
  auto info = loadCheckpoint(*session, folder.path);
  ASSERT_FALSE(info.ok());
  EXPECT_TRUE(
      contains(info.status().message, "'param/n' is i64[2], the plan expects f32[2]"));
}

TEST(StateTransfer, ADeathWhileSavingASplitPlanLeavesTheOldCheckpoint) {
  PlanPtr plan = formPlan(split).read();
  for (int dieAt = 1;; ++dieAt) {
    ASSERT_LT(dieAt, 100);
    TemporaryFolder folder;
    auto session = filled(formPlan(split));
    session->resumeAt(1, 1, 0);
    saved(*session, folder.path);
    ASSERT_TRUE(session->writeParameter("a", std::vector<float>(15, 9.1f)).ok());
    session->resumeAt(2, 2, 0);
    pid_t child = fork();
    if (child == 0) {
      CheckpointOptions options;
      options.observer = [&, calls = 0](const char *) mutable {
        if (++calls == dieAt)
          _exit(9);
      };
      _exit(saveCheckpoint(*session, folder.path, options).ok() ? 0 : 1);
    }
    int code = 0;
    waitpid(child, &code, 0);
    auto wide = makeSession(formPlan(f32Form).read());
    load(*wide, folder.path);
    std::vector<float> expected =
        wide->updates() == 1 ? someValues() : std::vector<float>(15, 9.1f);
    EXPECT_EQ(bits(parameter(*wide)), bits(expected)) << "died at write " << dieAt;
    if (WEXITSTATUS(code) == 0) {
      EXPECT_EQ(wide->updates(), 2);
      break;
    }
    ASSERT_EQ(WEXITSTATUS(code), 9);
  }
}

TEST(StateTransfer, ATruncatedCheckpointOfAnotherFormIsSkipped) {
  TemporaryFolder folder;
  auto first = filled(formPlan(split));
  first->resumeAt(1, 1, 0);
  saved(*first, folder.path);
  first->resumeAt(2, 2, 0);
  std::string newest = saved(*first, folder.path);
  std::filesystem::resize_file(newest, std::filesystem::file_size(newest) - 1);
  auto second = makeSession(formPlan(f32Form).read());
  std::vector<std::string> notes = load(*second, folder.path);
  EXPECT_EQ(second->updates(), 1);
  ASSERT_EQ(notes.size(), 2u); // skipped, converted
  EXPECT_EQ(bits(parameter(*second)), bits(someValues()));
}

TEST(StateTransfer, WeightsOfAnyFormLoadIntoAnyForm) {
  std::vector<float> values = someValues();
  for (StoredForm from : {f32Form, split, master, alone})
    for (StoredForm to : {f32Form, split, halfMaster, alone}) {
      TemporaryFolder folder;
      auto first = filled(formPlan(from));
      std::string path = saved(*first, folder.path); // more than weights: not used
      auto second = makeSession(formPlan(to).read());
      Status status = second->loadWeights(path);
      ASSERT_TRUE(status.ok()) << status.message;
      auto expected = makeSession(formPlan(to).read());
      ASSERT_TRUE(expected->writeParameter("a", parameter(*first)).ok());
      EXPECT_EQ(bits(parameter(*second)), bits(parameter(*expected)))
          << formText(from) << " to " << formText(to);
      EXPECT_EQ(second->updates(), 0);
    }
}

TEST(StateTransfer, WeightsFromElsewhereUnderTheModelsNames) {
  TemporaryFolder folder;
  float w = 3;
  int64_t count = 5;
  std::vector<uint16_t> words(15, 0x3e00); // 1.5 as f16, 0.125 as bf16
  for (DType type : {DType::f16, DType::bf16}) {
    std::string path =
        writeWeights(folder.path, {{"w", DType::f32, {}, &w, 4},
                                   {"a", type, {3, 5}, words.data(), 30},
                                   {"a/count", DType::i64, {}, &count, 8}});
    std::vector<std::string> lines;
    SessionOptions options;
    options.log = [&](const std::string &line) { lines.push_back(line); };
    auto session = makeSession(formPlan(split).read(), options);
    Status status = session->loadWeights(path);
    ASSERT_TRUE(status.ok()) << status.message;
    EXPECT_EQ(parameter(*session)[14], type == DType::f16 ? 1.5f : 0.125f);
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_TRUE(contains(lines[0], "without a master became bf16 with a split master"))
        << lines[0];
  }
}

TEST(StateTransfer, WeightsThatDoNotFitChangeNothing) {
  TemporaryFolder folder;
  float w = 3;
  int64_t count = 5;
  std::vector<uint16_t> words(15, 0x3e00);
  auto session = filled(formPlan(split));
  std::vector<uint8_t> before = allState(*session);
  auto refusal = [&](const std::vector<TensorToWrite> &tensors) {
    Status status = session->loadWeights(writeWeights(folder.path, tensors));
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(allState(*session), before);
    return status.message;
  };
  EXPECT_TRUE(contains(refusal({{"w", DType::f32, {}, &w, 4},
                                {"a", DType::bf16, {3, 5}, words.data(), 30},
                                {"a/count", DType::i16, {}, words.data(), 2}}),
                       "tensor 'a/count' is i16[], the plan expects i64[]"));
  EXPECT_TRUE(contains(refusal({{"w", DType::f32, {}, &w, 4},
                                {"a", DType::i16, {3, 5}, words.data(), 30},
                                {"a/count", DType::i64, {}, &count, 8}}),
                       "tensor 'a' is i16[3, 5], the plan expects bf16[3, 5]"));
  EXPECT_TRUE(contains(refusal({{"param/a", DType::bf16, {3, 5}, words.data(), 30},
                                {"master/a/low", DType::i16, {5, 3}, words.data(), 30},
                                {"a/count", DType::i64, {}, &count, 8},
                                {"w", DType::f32, {}, &w, 4}}),
                       "'master/a/low' is i16[5, 3]"));
}

TEST(StateTransfer, ParametersReadAndWriteByTheModelsName) {
  auto session = makeSession(formPlan(split).read());
  std::vector<float> values = someValues(), few(14);
  ASSERT_TRUE(session->writeParameter("param/a", values).ok());
  EXPECT_EQ(bits(parameter(*session)), bits(values));
  EXPECT_TRUE(contains(session->readParameter("a", few).message,
                       "parameter 'a' has 15 values, 14 are given"));
  EXPECT_TRUE(contains(session->readParameter("b", few).message,
                       "the plan has no parameter 'b'"));
  EXPECT_TRUE(contains(session->writeParameter("master/a/low", values).message,
                       "the plan has no parameter"));
  std::vector<float> one(1);
  EXPECT_TRUE(contains(session->readParameter("a/count", one).message,
                       "parameter 'a/count' is i64"));
}

// Names under which the state of two parameters could be confused.
TEST(StateTransfer, AParameterNamedLikeTheLowHalfOfAnother) {
  TestPlan p = scalarPlan(1, 1, 1), other = scalarPlan(1, 1, 1);
  addParameter(p, "x", alone, {2});
  addParameter(p, "x/low", master, {2});
  addParameter(other, "x", f32Form, {2});
  addParameter(other, "x/low", split, {2});
  auto first = makeSession(p.read()), second = makeSession(other.read());
  ASSERT_TRUE(first->writeParameter("x", std::vector<float>{1, 2}).ok());
  ASSERT_TRUE(first->writeParameter("x/low", std::vector<float>{0.1f, 0.2f}).ok());
  TemporaryFolder folder;
  saved(*first, folder.path);
  load(*second, folder.path);
  EXPECT_EQ(parameter(*second, "x", 2), (std::vector<float>{1, 2}));
  EXPECT_EQ(parameter(*second, "x/low", 2), (std::vector<float>{0.1f, 0.2f}));
}

TEST(StateTransfer, PlansWhoseMastersCompleteNothingAreRefused) {
  auto refusal = [](const std::string &name, DType type, std::vector<int64_t> shape,
                    bool isSaved = true) {
    TestPlan p = formPlan(alone);
    p.state(name, type, std::move(shape), fbs::Role::master, isSaved);
    auto plan = PlanReader::readMemory(p.file());
    return plan.ok() ? std::string() : plan.status().message;
  };
  EXPECT_EQ(refusal("master/a/low", DType::i16, {3, 5}), "");
  EXPECT_EQ(refusal("master/a", DType::f32, {3, 5}), "");
  for (const std::string &text :
       {refusal("master/a/low", DType::i16, {5, 3}),
        refusal("master/a", DType::f32, {15}), refusal("master/a", DType::i16, {3, 5}),
        refusal("master/b", DType::f32, {3, 5}), refusal("master/w", DType::f32, {}),
        refusal("other", DType::f32, {3, 5}),
        refusal("master/a", DType::f32, {3, 5}, false)})
    EXPECT_TRUE(contains(text, "completes no parameter of its shape")) << text;
  TestPlan both = formPlan(split);
  both.state("master/a", DType::f32, {3, 5}, fbs::Role::master);
  EXPECT_FALSE(PlanReader::readMemory(both.file()).ok());
}

} // namespace sluice::test
