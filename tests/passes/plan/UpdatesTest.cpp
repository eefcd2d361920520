// One update kernel for tensors of all shapes, launches merged over many of them: the
// same bits as one operation at a time, and every tensor is named.

#include "tests/passes/plan/PlanFixture.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

/// Parameters of ragged sizes: whole units, tails, a single element, a number. x [24,
/// 513]
/// -> gelu layer of 70 -> logits [24, 4] times a gain, and x -> u -> one -> v beside it.
const std::string ragged = R"(
graph.parameter @"param/w1" : tensor<70x513xf32> "parameter"
graph.parameter @"param/b1" : tensor<70xf32> "parameter"
graph.parameter @"param/w2" : tensor<4x70xf32> "parameter"
graph.parameter @"param/u" : tensor<1x513xf32> "parameter"
graph.parameter @"param/one" : tensor<1x1xf32> "parameter"
graph.parameter @"param/v" : tensor<4x1xf32> "parameter"
graph.parameter @"param/gain" : tensor<f32> "parameter"
func.func @forward(%x: tensor<24x513xf32> {graph.name = "x"}) -> (tensor<24x4xf32> {graph.name = "logits"}) {
  %w1 = graph.read @"param/w1" : tensor<70x513xf32>
  %b1 = graph.read @"param/b1" : tensor<70xf32>
  %w2 = graph.read @"param/w2" : tensor<4x70xf32>
  %u = graph.read @"param/u" : tensor<1x513xf32>
  %one = graph.read @"param/one" : tensor<1x1xf32>
  %v = graph.read @"param/v" : tensor<4x1xf32>
  %gain = graph.read @"param/gain" : tensor<f32>
  %0 = graph.contract %x, %w1 {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<24x513xf32>, tensor<70x513xf32>) -> tensor<24x70xf32>
  %1 = graph.broadcast %b1 {shape = array<i64: 24, 70>} : (tensor<70xf32>) -> tensor<24x70xf32>
  %2 = graph.add %0, %1 : (tensor<24x70xf32>, tensor<24x70xf32>) -> tensor<24x70xf32>
  %3 = graph.gelu %2 : (tensor<24x70xf32>) -> tensor<24x70xf32>
  %4 = graph.contract %3, %w2 {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<24x70xf32>, tensor<4x70xf32>) -> tensor<24x4xf32>
  %5 = graph.broadcast %gain {shape = array<i64: 24, 4>} : (tensor<f32>) -> tensor<24x4xf32>
  %6 = graph.mul %4, %5 : (tensor<24x4xf32>, tensor<24x4xf32>) -> tensor<24x4xf32>
  %7 = graph.contract %x, %u {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<24x513xf32>, tensor<1x513xf32>) -> tensor<24x1xf32>
  %8 = graph.contract %7, %one {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<24x1xf32>, tensor<1x1xf32>) -> tensor<24x1xf32>
  %9 = graph.contract %8, %v {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<24x1xf32>, tensor<4x1xf32>) -> tensor<24x4xf32>
  %10 = graph.add %6, %9 : (tensor<24x4xf32>, tensor<24x4xf32>) -> tensor<24x4xf32>
  return %10 : tensor<24x4xf32>
})";

OptimizerSpec optimizerOf(const std::string &name) {
  bool known = std::find(std::begin(kOptimizerKinds), std::end(kOptimizerKinds), name) !=
               std::end(kOptimizerKinds);
  OptimizerSpec spec = optimizerDefaults(known ? name : "sgd");
  if (name == "amsgrad")
    spec = optimizerDefaults("adam"), spec.amsgrad = true;
  if (name == "momentum" || name == "nesterov")
    spec.momentum = 0.9, spec.nesterov = name == "nesterov";
  return spec;
}

CompileOptions optionsFor(const std::string &optimizer, bool clips) {
  CompileOptions options;
  options.spec.loss.kind = "cross_entropy";
  options.spec.loss.logits = "logits";
  options.spec.optimizer = optimizerOf(optimizer);
  if (clips)
    options.spec.clip = {"global_norm", 0.5};
  options.spec.threads = 2;
  options.levels = {"x86-64-v3"};
  return options;
}

using State = std::map<std::string, std::string>;

/// Names of tensors that have other bytes.
std::vector<std::string> different(const State &a, const State &b) {
  std::vector<std::string> names;
  for (const auto &[name, bytes] : a)
    if (auto found = b.find(name); found == b.end() || found->second != bytes)
      names.push_back(name);
  return a.size() == b.size() ? names : std::vector<std::string>{"other tensors"};
}

/// Random parameters, then some steps: what a checkpoint holds.
State trained(const std::string &path, int threads) {
  Running running(path, threads);
  if (!running.session)
    return {};
  const Plan &plan = running.session->plan();
  unsigned seed = 90;
  for (const fbs::StateTensor *tensor : *plan.raw().state()) {
    if (tensor->role() != fbs::Role::parameter)
      continue;
    Shape shape{static_cast<int64_t>(tensor->size() / sizeof(float))};
    std::string bytes = Running::bytesOf(uniform(shape, -0.5, 0.5, seed++), DType::f32);
    Status status =
        running.session->writeState(tensor->name()->str(), bytes.data(), bytes.size());
    EXPECT_TRUE(status.ok()) << status.message;
  }
  std::string program = plan.accumulate() > 1 ? "micro" : "step";
  for (int64_t k = 0; k < 4; ++k)
    running.step(inputsOf(plan, program, 30 + k), k * plan.batch());
  return running.saved();
}

/// Fused and merged, by one worker and by two, against one operation at a time.
void expectSameBits(CompileOptions options) {
  PlanFolder folder;
  std::string merged = folder.file("merged.plan"), single = folder.file("single.plan");
  options.outPath = merged;
  Compiled compiled = compileText(ragged, options);
  ASSERT_TRUE(compiled.status.ok()) << compiled.status.message;
  options.outPath = single, options.fuse = false;
  compiled = compileText(ragged, options);
  ASSERT_TRUE(compiled.status.ok()) << compiled.status.message;
  const std::vector<std::string> none;
  State state = trained(merged, 2);
  ASSERT_FALSE(state.empty());
  EXPECT_EQ(different(state, trained(merged, 1)), none);
  EXPECT_EQ(different(state, trained(single, 2)), none);
}

struct Launches {
  PlanPtr plan;
  std::vector<const fbs::Launch *> overParts;

  Launches(const CompileOptions &options, const std::string &program) {
    Compiled compiled = compileText(ragged, options);
    EXPECT_TRUE(compiled.status.ok()) << compiled.status.message;
    auto read = PlanReader::readFile(options.outPath);
    EXPECT_TRUE(read.ok()) << read.status().message;
    if (!read)
      return;
    plan = *read;
    for (const fbs::Launch *launch : *plan->program(program)->launches())
      if (launch->stages()->Get(0)->units() > 0)
        overParts.push_back(launch);
  }
};

/// The tensors that a launch updates.
std::set<std::string> tensorsOf(const fbs::Launch &launch) {
  std::set<std::string> names;
  std::stringstream text(launch.node()->str());
  for (std::string name; std::getline(text, name, '+');)
    names.insert(name);
  return names;
}

class Updates : public testing::TestWithParam<const char *> {};

TEST_P(Updates, HaveTheBitsOfSingleOperations) {
  expectSameBits(optionsFor(GetParam(), true));
}

INSTANTIATE_TEST_SUITE_P(All, Updates,
                         testing::Values("sgd", "momentum", "nesterov", "adam", "adamw",
                                         "amsgrad", "nadam", "radam", "adagrad",
                                         "rmsprop", "lion", "lamb", "muon"));

TEST(UpdateLaunches, BehindAClipAreOneOfOneKernel) {
  PlanFolder folder;
  CompileOptions options = optionsFor("adamw", true);
  options.outPath = folder.file("m.plan");
  Launches launches(options, "step");
  ASSERT_EQ(launches.overParts.size(), 1u);
  const fbs::Launch &launch = *launches.overParts[0];
  // `gain` is a number; the gradient of `v` is computed where it is used.
  EXPECT_EQ(tensorsOf(launch), (std::set<std::string>{"b1", "one", "u", "w1", "w2"}));
  std::set<uint32_t> kernels;
  for (const fbs::Stage *stage : *launch.stages())
    kernels.insert(stage->kernel());
  EXPECT_EQ(kernels.size(), 1u);
}

TEST(UpdateLaunches, OfGroupsShareTheKernel) {
  PlanFolder folder;
  CompileOptions options = optionsFor("adamw", true);
  options.outPath = folder.file("m.plan");
  ParameterGroupSpec group;
  group.match = "w*";
  group.options.lr = 0.01, group.options.weightDecay = 0;
  group.keys = {"lr", "weight_decay"};
  options.spec.parameterGroups.push_back(group);
  Launches launches(options, "step");
  ASSERT_EQ(launches.overParts.size(), 1u);
  EXPECT_EQ(launches.overParts[0]->stages()->size(), 5u);
  expectSameBits(options);
}

TEST(UpdateLaunches, OfAccumulatedGradientsAreOne) {
  PlanFolder folder;
  CompileOptions options = optionsFor("adam", false);
  options.spec.accumulate = 2;
  options.outPath = folder.file("m.plan");
  Launches launches(options, "update");
  ASSERT_EQ(launches.overParts.size(), 1u);
  expectSameBits(options);
}

TEST(UpdateLaunches, LeaveFrozenTensorsOut) {
  PlanFolder folder;
  CompileOptions options = optionsFor("sgd", true);
  options.spec.frozen = {"w1", "v"};
  options.outPath = folder.file("m.plan");
  Launches launches(options, "step");
  ASSERT_EQ(launches.overParts.size(), 1u);
  EXPECT_EQ(tensorsOf(*launches.overParts[0]),
            (std::set<std::string>{"b1", "one", "u", "w2"}));
  expectSameBits(options);
}

} // namespace
} // namespace sluice
