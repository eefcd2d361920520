// One update kernel for tensors of all shapes, launches merged over many of them: the
// same bits as one operation at a time, and every tensor is named.

#include "tests/passes/plan/TrainedState.h"

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

/// Gradients of products and convolutions that are cut into tiles of rows, of rows and
/// columns, and slices of images that are added up.
const std::string tiled = R"(
graph.parameter @"param/c1" : tensor<40x3x3x3xf32> "parameter"
graph.parameter @"param/c2" : tensor<48x40x3x3xf32> "parameter"
graph.parameter @"param/wide" : tensor<26x30003xf32> "parameter"
graph.parameter @"param/w" : tensor<67x26xf32> "parameter"
graph.parameter @"param/out" : tensor<4x115xf32> "parameter"
func.func @forward(%x: tensor<4x3x28x28xf32> {graph.name = "x"}, %z: tensor<4x30003xf32> {graph.name = "z"}) -> (tensor<4x4xf32> {graph.name = "logits"}) {
  %c1 = graph.read @"param/c1" : tensor<40x3x3x3xf32>
  %c2 = graph.read @"param/c2" : tensor<48x40x3x3xf32>
  %wide = graph.read @"param/wide" : tensor<26x30003xf32>
  %w = graph.read @"param/w" : tensor<67x26xf32>
  %out = graph.read @"param/out" : tensor<4x115xf32>
  %0 = graph.conv %x, %c1 {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_begin = array<i64: 0, 0>, pads_end = array<i64: 0, 0>, groups = 1 : i64} : (tensor<4x3x28x28xf32>, tensor<40x3x3x3xf32>) -> tensor<4x40x26x26xf32>
  %1 = graph.tanh %0 : (tensor<4x40x26x26xf32>) -> tensor<4x40x26x26xf32>
  %2 = graph.conv %1, %c2 {strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads_begin = array<i64: 0, 0>, pads_end = array<i64: 0, 0>, groups = 1 : i64} : (tensor<4x40x26x26xf32>, tensor<48x40x3x3xf32>) -> tensor<4x48x12x12xf32>
  %3 = graph.reduce %2 {kind = "sum", axes = array<i64: 2, 3>} : (tensor<4x48x12x12xf32>) -> tensor<4x48xf32>
  %4 = graph.contract %z, %wide {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<4x30003xf32>, tensor<26x30003xf32>) -> tensor<4x26xf32>
  %5 = graph.tanh %4 : (tensor<4x26xf32>) -> tensor<4x26xf32>
  %6 = graph.contract %5, %w {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<4x26xf32>, tensor<67x26xf32>) -> tensor<4x67xf32>
  %7 = graph.concat %3, %6 {axis = 1 : i64} : (tensor<4x48xf32>, tensor<4x67xf32>) -> tensor<4x115xf32>
  %8 = graph.contract %7, %out {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<4x115xf32>, tensor<4x115xf32>) -> tensor<4x4xf32>
  return %8 : tensor<4x4xf32>
})";

/// Fused and merged, by one worker and by two, against one operation at a time.
void expectSameBits(const std::string &model, CompileOptions options) {
  PlanFolder folder;
  std::string merged = folder.file("merged.plan"), single = folder.file("single.plan");
  options.outPath = merged;
  Compiled compiled = compileText(model, options);
  ASSERT_TRUE(compiled.status.ok()) << compiled.status.message;
  options.outPath = single, options.fuse = false;
  compiled = compileText(model, options);
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
  expectSameBits(ragged, optionsFor(GetParam(), true));
}

TEST_P(Updates, OfTilesHaveTheBitsOfSingleOperations) {
  expectSameBits(tiled, optionsFor(GetParam(), false));
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
  expectSameBits(ragged, options);
}

TEST(UpdateLaunches, OfAccumulatedGradientsAreOne) {
  PlanFolder folder;
  CompileOptions options = optionsFor("adam", false);
  options.spec.accumulate = 2;
  options.outPath = folder.file("m.plan");
  Launches launches(options, "update");
  ASSERT_EQ(launches.overParts.size(), 1u);
  expectSameBits(ragged, options);
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
  expectSameBits(ragged, options);
}

/// Of a plan: stages over tiles, and bytes of gradients that are stored.
struct Gradients {
  std::set<std::string> tiled; // kernels that write tiles
  uint64_t storedBytes = 0;
  std::string report;

  Gradients(const std::string &model, const CompileOptions &options,
            const std::string &program) {
    Compiled compiled = compileText(model, options);
    EXPECT_TRUE(compiled.status.ok()) << compiled.status.message;
    for (const std::string &note : compiled.report.notes)
      if (note.starts_with("updates: "))
        report = note;
    auto read = PlanReader::readFile(options.outPath);
    EXPECT_TRUE(read.ok()) << read.status().message;
    if (!read)
      return;
    const fbs::Program *found = (*read)->program(program);
    for (const fbs::Launch *launch : *found->launches()) {
      const fbs::Stage *stage = launch->stages()->Get(0);
      for (const fbs::Operand *operand : *stage->operands())
        if (launch->stages()->size() == 2 && operand->unit_stride() > 0)
          tiled.insert((*read)->raw().kernels()->Get(stage->kernel())->name()->str());
    }
    for (const fbs::BufferInfo *buffer : *found->buffers())
      if (buffer->category()->str() == "gradients")
        storedBytes += buffer->size();
  }
};

const std::string convolutions = R"(
graph.parameter @"param/c1" : tensor<256x3x3x3xf32> "parameter"
graph.parameter @"param/c2" : tensor<300x256x3x3xf32> "parameter"
graph.parameter @"param/out" : tensor<4x300xf32> "parameter"
func.func @forward(%x: tensor<4x3x28x28xf32> {graph.name = "x"}) -> (tensor<4x4xf32> {graph.name = "logits"}) {
  %c1 = graph.read @"param/c1" : tensor<256x3x3x3xf32>
  %c2 = graph.read @"param/c2" : tensor<300x256x3x3xf32>
  %out = graph.read @"param/out" : tensor<4x300xf32>
  %0 = graph.conv %x, %c1 {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_begin = array<i64: 0, 0>, pads_end = array<i64: 0, 0>, groups = 1 : i64} : (tensor<4x3x28x28xf32>, tensor<256x3x3x3xf32>) -> tensor<4x256x26x26xf32>
  %1 = graph.tanh %0 : (tensor<4x256x26x26xf32>) -> tensor<4x256x26x26xf32>
  %2 = graph.conv %1, %c2 {strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads_begin = array<i64: 0, 0>, pads_end = array<i64: 0, 0>, groups = 1 : i64} : (tensor<4x256x26x26xf32>, tensor<300x256x3x3xf32>) -> tensor<4x300x12x12xf32>
  %3 = graph.reduce %2 {kind = "sum", axes = array<i64: 2, 3>} : (tensor<4x300x12x12xf32>) -> tensor<4x300xf32>
  %4 = graph.contract %3, %out {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<4x300xf32>, tensor<4x300xf32>) -> tensor<4x4xf32>
  return %4 : tensor<4x4xf32>
})";

TEST(FusedUpdates, StoreNoGradient) {
  PlanFolder folder;
  CompileOptions options = optionsFor("adamw", false);
  options.outPath = folder.file("m.plan");
  options.spec.threads = 1;
  Gradients gradients(convolutions, options, "step");
  EXPECT_EQ(gradients.storedBytes, 0u);
  EXPECT_EQ(gradients.tiled, (std::set<std::string>{"conv_weight_grad_f32", "gemm_f32",
                                                    "sum_slices_f32"}));
  EXPECT_NE(gradients.report.find("3 are applied tile by tile"), std::string::npos)
      << gradients.report;
  options = optionsFor("adamw", false);
  expectSameBits(convolutions, options);
}

/// A table of 1,009 rows of which a batch reads 20, and one that it reads nearly whole.
const std::string tables = R"(
graph.parameter @"param/many" : tensor<1009x300xf32> "parameter"
graph.parameter @"param/few" : tensor<11x300xf32> "parameter"
graph.parameter @"param/out" : tensor<4x300xf32> "parameter"
func.func @forward(%x: tensor<4x5xi64> {graph.name = "x", graph.batched, graph.bounds = array<i64: 0, 1008>}, %y: tensor<4x5xi64> {graph.name = "y", graph.batched, graph.bounds = array<i64: 0, 10>}) -> (tensor<4x4xf32> {graph.name = "logits"}) {
  %many = graph.read @"param/many" : tensor<1009x300xf32>
  %few = graph.read @"param/few" : tensor<11x300xf32>
  %out = graph.read @"param/out" : tensor<4x300xf32>
  %0 = graph.gather %many, %x {axis = 0 : i64} : (tensor<1009x300xf32>, tensor<4x5xi64>) -> tensor<4x5x300xf32>
  %1 = graph.gather %few, %y {axis = 0 : i64} : (tensor<11x300xf32>, tensor<4x5xi64>) -> tensor<4x5x300xf32>
  %2 = graph.mul %0, %1 : (tensor<4x5x300xf32>, tensor<4x5x300xf32>) -> tensor<4x5x300xf32>
  %3 = graph.reduce %2 {kind = "sum", axes = array<i64: 1>} : (tensor<4x5x300xf32>) -> tensor<4x300xf32>
  %4 = graph.contract %3, %out {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<4x300xf32>, tensor<4x300xf32>) -> tensor<4x4xf32>
  return %4 : tensor<4x4xf32>
})";

TEST(FusedUpdates, OfTables) {
  PlanFolder folder;
  CompileOptions options = optionsFor("adamw", false);
  options.outPath = folder.file("m.plan");
  Gradients gradients(tables, options, "step");
  EXPECT_TRUE(gradients.tiled.contains("scatter_add_f32"));
  EXPECT_LT(gradients.storedBytes, 1009u * 300 * 4);
  expectSameBits(tables, options);
  options.spec.precision.compute = "amp_bf16";
  options.spec.precision.master = "none", options.spec.precision.optimizerState = "bf16";
  expectSameBits(tables, options);
}

TEST(FusedUpdates, AreNoneWhereAllGradientsAreNeeded) {
  PlanFolder folder;
  CompileOptions options = optionsFor("adamw", true);
  options.outPath = folder.file("m.plan");
  Gradients clipped(tiled, options, "step");
  EXPECT_EQ(clipped.tiled, std::set<std::string>());
  EXPECT_GT(clipped.storedBytes, 26u * 30003 * 4);
  EXPECT_EQ(clipped.report, "");
  options = optionsFor("adamw", false);
  options.outPath = folder.file("m.plan");
  options.spec.lossScale.kind = "dynamic";
  EXPECT_EQ(Gradients(tiled, options, "step").tiled, std::set<std::string>());
}

TEST(FusedUpdates, AddToAccumulators) {
  PlanFolder folder;
  CompileOptions options = optionsFor("adam", false);
  options.spec.accumulate = 2;
  options.outPath = folder.file("m.plan");
  EXPECT_EQ(Gradients(convolutions, options, "micro").storedBytes, 0u);
  expectSameBits(tiled, options);
}

TEST(FusedUpdates, OfMastersAndNarrowMoments) {
  for (auto [master, moments] : {std::pair("split", "int8"), std::pair("split", "fp32"),
                                 std::pair("fp32", "fp8"), std::pair("none", "bf16")}) {
    SCOPED_TRACE(std::string(master) + " " + moments);
    CompileOptions options = optionsFor("adamw", false);
    options.spec.precision.compute = "amp_bf16";
    options.spec.precision.master = master;
    options.spec.precision.optimizerState = moments;
    expectSameBits(tiled, options);
  }
}

} // namespace
} // namespace sluice
