// Every rule of the plan reader: a plan that breaks it is refused, with the place.

#include "TestPlan.h"

#include <cstring>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>

namespace sluice::test {

static Status refusal(const std::vector<uint8_t> &file) {
  auto plan = PlanReader::readMemory(file, "x.plan");
  return plan.ok() ? Status::success() : plan.status();
}

struct Rule {
  const char *name;
  std::function<void(TestPlan &)> breakIt;
  const char *message;
};

static fbs::ProgramT &firstProgram(TestPlan &p) { return *p.plan.programs[0]; }
static fbs::LaunchT &firstLaunch(TestPlan &p) { return *firstProgram(p).launches[0]; }
static fbs::StageT &firstStage(TestPlan &p) { return *firstLaunch(p).stages[0]; }

static const Rule rules[] = {
    {"Threads", [](auto &p) { p.plan.threads = 0; }, "threads is 0"},
    {"Accumulate", [](auto &p) { p.plan.accumulate = 0; }, "accumulate is 0"},
    {"Batch", [](auto &p) { p.plan.batch = -1; }, "batch is -1"},
    {"ReservationSize", [](auto &p) { p.plan.step_bytes = UINT64_MAX; }, "64 TiB"},
    {"StateOutside", [](auto &p) { p.tensor("param/w").offset = UINT64_MAX - 3; },
     "outside the state reservation"},
    {"StateUnaligned", [](auto &p) { p.tensor("param/w").offset += 2; }, "unaligned"},
    {"StateSizeIsNotShape", [](auto &p) { p.tensor("param/w").size = 8; },
     "is not its shape"},
    {"StateShapeOverflows",
     [](auto &p) {
       p.tensor("param/w").shape = {int64_t(1) << 32, int64_t(1) << 32, 4};
       p.tensor("param/w").size = 0;
     },
     "malformed"},
    {"StateShapeNegative",
     [](auto &p) {
       p.tensor("param/w").shape = {-1, -4};
       p.tensor("param/w").size = 16;
     },
     "malformed"},
    {"StateNameTwice", [](auto &p) { p.tensor("step").name = "param/w"; },
     "two state tensors"},
    {"StateNameMissing", [](auto &p) { p.tensor("param/w").name = ""; }, "usable name"},
    {"StateOverlaps",
     [](auto &p) { p.tensor("control/valid").offset = p.tensor("step").offset; },
     "overlap"},
    {"StateTypeUnknown",
     [](auto &p) { p.tensor("param/w").dtype = static_cast<fbs::DType>(13); },
     "unknown element type"},
    {"StateRoleUnknown",
     [](auto &p) { p.tensor("param/w").role = static_cast<fbs::Role>(-1); },
     "unknown role"},
    {"FillIsNoInteger",
     [](auto &p) {
       p.tensor("step").init = fbs::InitKind::fill;
       p.tensor("step").fill = 1e300;
     },
     "no integer"},
    {"ControlUnknown", [](auto &p) { p.tensor("control/valid").name = "control/speed"; },
     "not one this runtime writes"},
    {"ControlOfUnknownGroup",
     [](auto &p) { p.tensor("control/main/lr").name = "control/other/lr"; },
     "not one this runtime writes"},
    {"ControlType", [](auto &p) { p.tensor("control/valid").dtype = fbs::DType::u64; },
     "has to be one i64"},
    {"ScaleType", [](auto &p) { p.tensor("control/valid").name = "scale/value"; },
     "'scale/value' has to be one f32"},
    {"SkippedType", [](auto &p) { p.tensor("control/main/lr").name = "scale/skipped"; },
     "'scale/skipped' has to be one i64"},
    {"GroupRate", [](auto &p) { p.plan.groups[0]->lr = 0.0 / 0.0; }, "out of range"},
    {"GroupBeta", [](auto &p) { p.plan.groups[0]->beta1 = 1; }, "out of range"},
    {"GroupSchedule",
     [](auto &p) { p.plan.groups[0]->schedule = fbs::ScheduleKind::cosine; },
     "impossible length"},
    {"GroupTable",
     [](auto &p) {
       p.plan.groups[0]->schedule = fbs::ScheduleKind::table;
       p.plan.groups[0]->points = {3};
     },
     "without a factor for each point"},
    {"GroupPoints", [](auto &p) { p.plan.groups[0]->points = {3, 3}; },
     "points that do not rise"},
    {"GroupFactor", [](auto &p) { p.plan.groups[0]->gamma = 0.0 / 0.0; },
     "factor out of range"},
    {"GroupMember", [](auto &p) { p.plan.groups[0]->members = {"param/u"}; },
     "member the state does not have"},
    {"GroupMemberTwice", [](auto &p) { p.plan.groups[0]->members = {"w", "w"}; },
     "two groups"},
    {"KernelWithoutCode", [](auto &p) { p.plan.kernels[0]->generated = true; },
     "no code"},
    {"KernelIndex", [](auto &p) { firstStage(p).kernel = 99; }, "names kernel 99"},
    {"ProgramName", [](auto &p) { firstProgram(p).name = "stop"; }, "is unknown"},
    {"ProgramTwice", [](auto &p) { firstProgram(p).name = "eval"; }, "there twice"},
    {"StepWithAccumulate", [](auto &p) { p.plan.accumulate = 2; }, "with accumulate 2"},
    {"RanksOfWindow", [](auto &p) { p.plan.as_ranks = 2; },
     "expected a divisor of accumulate"},
    {"RanksWithoutTheirProgram",
     [](auto &p) {
       firstProgram(p).name = "micro";
       p.program("update");
       p.plan.accumulate = p.plan.as_ranks = 2;
     },
     "'close_rank' does not go with as_ranks"},
    {"StepBytes", [](auto &p) { firstProgram(p).step_bytes = 1 << 20; },
     "of a step reservation"},
    {"LossMissing", [](auto &p) { firstProgram(p).outputs[0]->name = "loss"; },
     "lacks the f32 scalar output 'loss_sum'"},
    {"PortOutside", [](auto &p) { firstProgram(p).inputs[0]->offset = 1 << 20; },
     "outside its reservation"},
    {"PortSize", [](auto &p) { firstProgram(p).inputs[0]->size = 4; },
     "is not its shape"},
    {"InputInState",
     [](auto &p) { firstProgram(p).inputs[0]->space = fbs::Space::state; },
     "space it may not be in"},
    {"InputRows",
     [](auto &p) {
       firstProgram(p).inputs[0]->shape = {2};
       firstProgram(p).inputs[0]->size = 8;
     },
     "has 2 rows, the batch is 3"},
    {"PortBounds", [](auto &p) { firstProgram(p).inputs[0]->bounded = true; },
     "impossible bounds"},
    {"InputsOverlap",
     [](auto &p) {
       auto &inputs = firstProgram(p).inputs;
       inputs.push_back(std::make_unique<fbs::PortT>(*inputs[0]));
       inputs.back()->name = "u";
     },
     "overlap"},
    {"Units", [](auto &p) { firstLaunch(p).units = -1; }, "impossible number of units"},
    {"Chunk", [](auto &p) { firstLaunch(p).chunk = 0; }, "impossible number of units"},
    {"NoStages", [](auto &p) { firstLaunch(p).stages.clear(); }, "number of stages"},
    {"UnitScale",
     [](auto &p) {
       firstLaunch(p).units = int64_t(1) << 40;
       firstStage(p).unit_scale = int64_t(1) << 40;
     },
     "impossible unit scale"},
    {"PartBehindItsLaunch",
     [](auto &p) { firstStage(p).units = firstLaunch(p).units + 1; },
     "stage 0 is no part that begins with unit 0"},
    {"PartWithoutUnits", [](auto &p) { firstStage(p).first_unit = 1; },
     "stage 0 is no part that begins with unit 0"},
    {"PartOverflows",
     [](auto &p) {
       firstStage(p).first_unit = INT64_MAX;
       firstStage(p).units = INT64_MAX;
     },
     "stage 0 is no part that begins with unit 0"},
    {"PartsMissing",
     [](auto &p) {
       firstLaunch(p).units = 4;
       firstStage(p).units = 3;
     },
     "has units without a part"},
    {"OperandOutside", [](auto &p) { firstStage(p).operands[0].mutate_size(1 << 20); },
     "operand 0 lies outside"},
    {"OperandOverflows",
     [](auto &p) { firstStage(p).operands[0].mutate_offset(UINT64_MAX); },
     "operand 0 lies outside"},
    {"OperandSpace",
     [](auto &p) { firstStage(p).operands[0].mutate_space(static_cast<fbs::Space>(2)); },
     "operand 0 lies outside"},
    {"WorkerSlices",
     [](auto &p) {
       p.plan.threads = 3;
       firstStage(p).operands[0].mutate_worker_stride(8);
     },
     "no room for the slices of 3 workers"},
    {"UnitsOfChunk",
     [](auto &p) {
       firstLaunch(p).units = 8;
       firstLaunch(p).chunk = 4;
       firstStage(p).operands[0].mutate_unit_stride(8);
     },
     "no room for the units of one chunk"},
    {"SharedChunks",
     [](auto &p) {
       p.plan.threads = 2;
       firstLaunch(p).units = 8;
       firstStage(p).operands[0].mutate_unit_stride(4);
     },
     "overwrite each other"},
    {"Buffer",
     [](auto &p) {
       auto &buffers = firstProgram(p).buffers;
       buffers.push_back(std::make_unique<fbs::BufferInfoT>());
       buffers.back()->offset = 1 << 20;
     },
     "buffer 0 lies outside"},
};

class BrokenPlan : public testing::TestWithParam<Rule> {};

TEST_P(BrokenPlan, IsRefused) {
  TestPlan p = scalarPlan(3, 1, 0.5);
  ASSERT_TRUE(refusal(p.file()).ok());
  GetParam().breakIt(p);
  Status status = refusal(p.file());
  EXPECT_EQ(status.code, StatusCode::damaged);
  EXPECT_NE(status.message.find(GetParam().message), std::string::npos) << status.message;
}

INSTANTIATE_TEST_SUITE_P(Rules, BrokenPlan, testing::ValuesIn(rules),
                         [](const auto &info) { return info.param.name; });

TEST(PlanReader, DescribesInputsAndMemory) {
  PlanPtr plan = scalarPlan(3, 1, 0.5).read();
  std::vector<InputSpec> inputs = plan->inputs("step");
  ASSERT_EQ(inputs.size(), 1u);
  EXPECT_EQ(inputs[0].name, "t");
  EXPECT_EQ(inputs[0].shape, std::vector<int64_t>{3});
  EXPECT_EQ(inputs[0].sampleBytes(), 4u);
  EXPECT_EQ(plan->memory().stateBytes, 4u * 64);
  EXPECT_EQ(plan->programNames(), (std::vector<std::string>{"step", "eval", "infer"}));
  EXPECT_TRUE(plan->inputs("nothing").empty());
}

TEST(PlanReader, EveryCutOfTheFileIsRefused) {
  std::vector<uint8_t> file = scalarPlan(3, 1, 0.5).file();
  for (size_t size = 0; size < file.size(); ++size)
    EXPECT_FALSE(
        refusal({file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size)}).ok())
        << size;
}

TEST(PlanReader, NamesWhatIsWrongWithTheOutside) {
  std::vector<uint8_t> file = scalarPlan(3, 1, 0.5).file();
  auto other = file;
  other[0] = 'X';
  EXPECT_EQ(refusal(other).code, StatusCode::refused);
  other = file;
  other[8] = 2;
  EXPECT_NE(refusal(other).message.find("plan format 2"), std::string::npos);
  other = file;
  other.back() ^= 1;
  EXPECT_NE(refusal(other).message.find("checksum"), std::string::npos);
}

TEST(PlanReader, SegmentsMustLieInTheFile) {
  TestPlan p = scalarPlan(3, 1, 0.5);
  std::vector<uint8_t> code(100, 7);
  p.plan.images.push_back(std::make_unique<fbs::CodeImageT>());
  p.plan.images[0]->level = "x86-64-v3";
  p.plan.images[0]->offset = 1;
  p.plan.images[0]->size = code.size();
  std::span<const uint8_t> segments[] = {code};
  std::vector<uint8_t> file = p.file(segments);
  auto plan = PlanReader::readMemory(file);
  ASSERT_TRUE(plan.ok()) << plan.status().message;
  const fbs::CodeImage *image = (*plan)->raw().images()->Get(0);
  EXPECT_EQ(image->offset() % planPageBytes, 0u);
  EXPECT_EQ((*plan)->file()[image->offset() + 99], 7);

  p.plan.images[0]->size = 200;
  EXPECT_FALSE(buildPlanFile(p.flatBuffer(), segments).ok());
  p.plan.images[0]->size = code.size();
  p.plan.images[0]->offset = 0;
  EXPECT_FALSE(buildPlanFile(p.flatBuffer(), segments).ok());
}

TEST(PlanReader, ReadsAFileAndFindsTheWeightsBesideIt) {
  TemporaryFolder folder;
  std::string path = folder.path + "/a.b.plan";
  TestPlan p = scalarPlan(3, 1, 0.5);
  ASSERT_TRUE(writePlanFile(path, p.flatBuffer(), {}).ok());
  auto plan = PlanReader::readFile(path);
  ASSERT_TRUE(plan.ok()) << plan.status().message;
  EXPECT_EQ((*plan)->weightsPath(), folder.path + "/a.b.safetensors");
  EXPECT_EQ(PlanReader::readFile(folder.path).status().code, StatusCode::refused);
  EXPECT_EQ(PlanReader::readFile(folder.path + "/none").status().code,
            StatusCode::refused);
}

} // namespace sluice::test
