// Parameters and saved values in formats of fewer bits, through plan file and runtime.

#include "kernels/StoredFormats.h"
#include "tests/passes/plan/StepCheck.h"
#include "tests/passes/plan/TrainedState.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

/// Rows of 64 and tables of 32: x [32, 64], ids [32] -> gelu layer -> logits [32, 6].
const std::string blocks = R"(
graph.parameter @"param/table" : tensor<16x64xf32> "parameter"
graph.parameter @"param/fc1.weight" : tensor<128x64xf32> "parameter"
graph.parameter @"param/fc1.bias" : tensor<128xf32> "parameter"
graph.parameter @"param/fc2.weight" : tensor<6x128xf32> "parameter"
func.func @forward(%x: tensor<32x64xf32> {graph.name = "x"}, %ids: tensor<32xi64> {graph.name = "ids", graph.bounds = array<i64: 0, 15>}) -> (tensor<32x6xf32> {graph.name = "logits"}) {
  %t = graph.read @"param/table" : tensor<16x64xf32>
  %w1 = graph.read @"param/fc1.weight" : tensor<128x64xf32>
  %b1 = graph.read @"param/fc1.bias" : tensor<128xf32>
  %w2 = graph.read @"param/fc2.weight" : tensor<6x128xf32>
  %e = graph.gather %t, %ids {axis = 0 : i64} : (tensor<16x64xf32>, tensor<32xi64>) -> tensor<32x64xf32>
  %h = graph.add %x, %e : (tensor<32x64xf32>, tensor<32x64xf32>) -> tensor<32x64xf32> loc("sum")
  %0 = graph.contract %h, %w1 {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<32x64xf32>, tensor<128x64xf32>) -> tensor<32x128xf32>
  %1 = graph.broadcast %b1 {shape = array<i64: 32, 128>} : (tensor<128xf32>) -> tensor<32x128xf32>
  %2 = graph.add %0, %1 : (tensor<32x128xf32>, tensor<32x128xf32>) -> tensor<32x128xf32> loc("fc1")
  %3 = graph.gelu %2 : (tensor<32x128xf32>) -> tensor<32x128xf32> loc("act")
  %4 = graph.contract %3, %w2 {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<32x128xf32>, tensor<6x128xf32>) -> tensor<32x6xf32>
  return %4 : tensor<32x6xf32>
})";

StorageRule stored(const std::string &format, const std::string &match = "*") {
  StorageRule rule;
  rule.match = match;
  rule.storage = {format};
  return rule;
}

StorageRule saved(const std::string &format, const std::string &match = "*") {
  StorageRule rule;
  rule.match = match;
  rule.saved = format;
  return rule;
}

TrainingSpec specWith(std::vector<StorageRule> rules) {
  TrainingSpec spec = classification("adamw");
  spec.optimizer.lr = 0.01;
  spec.precision.rules = std::move(rules);
  return spec;
}

/// What is saved after some steps of a plan that is compiled so.
State trainedWith(const TrainingSpec &spec, int threads = 2, bool fuse = true) {
  PlanFolder folder;
  CompileOptions options = optionsFor(spec, folder.file("m.plan"));
  options.fuse = fuse;
  Compiled compiled = compileText(blocks, options);
  EXPECT_TRUE(compiled.status.ok()) << compiled.status.message;
  return compiled.status.ok() ? trained(folder.file("m.plan"), threads) : State();
}

class Formats : public testing::TestWithParam<std::string> {};

/// Other fusion, other threads, and what runs again: the same bits.
TEST_P(Formats, BitsDependOnNothingButTheGraph) {
  TrainingSpec spec = specWith({stored(GetParam()), saved(GetParam())});
  State one = trainedWith(spec, 1);
  ASSERT_FALSE(one.empty());
  spec.recompute = "sqrt";
  EXPECT_EQ(different(one, trainedWith(spec, 3, false)), std::vector<std::string>());
}

/// The first loss is that of the interpreter on the decoded parameters: later ones depend
/// on which of two neighbours a sum in another order rounds to.
TEST_P(Formats, TheFirstStepIsTheInterpreters) {
  StorageRule rule = stored(GetParam());
  rule.master = "fp32";
  TrainingSpec spec = specWith({rule});
  PlanFolder folder;
  Compiled compiled = compileText(blocks, optionsFor(spec, folder.file("m.plan")));
  ASSERT_TRUE(compiled.status.ok()) << compiled.status.message;
  Running running(folder.file("m.plan"), 2);
  Trained interpreted(blocks, spec);
  ASSERT_TRUE(interpreted.good) << interpreted.errors;
  const Plan &plan = running.session->plan();
  unsigned seed = 40;
  for (const fbs::StateTensor *tensor : *plan.raw().state()) {
    if (tensor->role() != fbs::Role::parameter)
      continue;
    std::vector<int64_t> shape(tensor->value_shape()->begin(),
                               tensor->value_shape()->end());
    std::vector<float> values;
    for (double value : uniform(shape, -0.5, 0.5, seed++).reals)
      values.push_back(static_cast<float>(value));
    std::string name = tensor->name()->str().substr(6);
    ASSERT_TRUE(running.session->writeParameter(name, values).ok());
  }
  // The state as the runtime has encoded it.
  for (auto &entry : interpreted.state) {
    const fbs::StateTensor *tensor = plan.state(entry.getKey());
    if (!tensor || tensor->role() == fbs::Role::moment ||
        entry.getKey().starts_with("control/"))
      continue;
    auto bytes = running.session->state(entry.getKey());
    for (size_t i = 0; i < entry.second.integers.size(); ++i)
      entry.second.integers[i] = static_cast<int8_t>(bytes[i]);
    for (size_t i = 0; i < entry.second.reals.size(); ++i) {
      uint32_t word = 0;
      size_t size = dtypeSize(static_cast<DType>(tensor->dtype()));
      std::memcpy(&word, bytes.data() + i * size, size);
      auto type = static_cast<DType>(tensor->dtype());
      entry.second.reals[i] =
          type == DType::f32 ? std::bit_cast<float>(word)
          : type == DType::bf16
              ? std::bit_cast<float>(word << 16)
              : float(std::bit_cast<_Float16>(static_cast<uint16_t>(word)));
    }
  }
  Values inputs = inputsOf(plan, "step", 10);
  setControls(interpreted, *running.session, 0);
  double loss = scalar(interpreted.run("step", inputs), "loss_sum");
  EXPECT_NEAR(running.step(inputs, 0).lossSum, loss, 1e-4 * loss);
  for (const char *name : {"master/fc1.weight", "master/table"}) {
    auto bytes = running.session->state(name);
    const HostTensor &expected = interpreted.at(name);
    for (size_t i = 0; i < expected.reals.size(); ++i) {
      float found;
      std::memcpy(&found, bytes.data() + 4 * i, 4);
      ASSERT_NEAR(found, expected.reals[i], 1e-4) << name << "[" << i << "]";
    }
  }
}

TEST_P(Formats, StateShrinksToCodesAndScales) {
  auto bytesOf = [](const TrainingSpec &spec) {
    PlanFolder folder;
    Compiled compiled = compileText(blocks, optionsFor(spec, folder.file("m.plan")));
    EXPECT_TRUE(compiled.status.ok()) << compiled.status.message;
    return compiled.report.stateBytes;
  };
  StoredFormat format = *storedFormat(GetParam());
  int64_t saving = 0;
  for (std::vector<int64_t> shape : {std::vector<int64_t>{128, 64}, {16, 64}})
    saving += storedBytes(StoredFormat::fp32, shape) - storedBytes(format, shape);
  // Tensors begin at multiples of 64 bytes; a scale has a line at least.
  EXPECT_NEAR(bytesOf(specWith({})) - bytesOf(specWith({stored(GetParam(), "fc1.weight"),
                                                        stored(GetParam(), "table")})),
              saving, 4 * 64);
}

// All codes of all formats: tests/ir/StoredTest, tests/kernels/StoredFormatsTest.
INSTANTIATE_TEST_SUITE_P(Storage, Formats,
                         testing::Values("fp16", "e4m3", "e4m3_128x128", "nvfp4"),
                         [](const auto &info) { return info.param; });

// --- moments

TrainingSpec specOfMoments(const std::string &format) {
  TrainingSpec spec = specWith({});
  spec.precision.optimizerState = format;
  return spec;
}

class Moments : public testing::TestWithParam<std::string> {};

/// Whatever is fused and however many threads there are.
TEST_P(Moments, BitsDependOnNothingButTheGraph) {
  TrainingSpec spec = specOfMoments(GetParam());
  State one = trainedWith(spec, 1);
  ASSERT_FALSE(one.empty());
  EXPECT_EQ(different(one, trainedWith(spec, 3, false)), std::vector<std::string>());
}

/// The first update is that of f32 moments, which begin at 0 in both; later ones differ
/// by what was rounded.
TEST_P(Moments, TrainLikeTheInterpreter) {
  expectTrainsLikeInterpreter(blocks, specOfMoments(GetParam()), 2, 3e-2);
}

TEST_P(Moments, AreStoredInCodesAndScales) {
  PlanFolder folder;
  Compiled compiled =
      compileText(blocks, optionsFor(specOfMoments(GetParam()), folder.file("m.plan")));
  ASSERT_TRUE(compiled.status.ok()) << compiled.status.message;
  Running running(folder.file("m.plan"), 2);
  const Plan &plan = running.session->plan();
  auto formatOf = [&](const char *name) {
    const auto *format = plan.state(name)->format();
    return format ? format->str() : std::string();
  };
  EXPECT_EQ(formatOf("opt/fc1.weight/m"), GetParam());
  // Vectors, embeddings and what is small stay f32; so do squares without a scale.
  for (const char *name : {"opt/fc1.bias/m", "opt/table/v", "opt/fc2.weight/v"})
    EXPECT_EQ(formatOf(name), "") << name;
  EXPECT_EQ(formatOf("opt/fc1.weight/v"), GetParam() == "fp16" ? "" : GetParam());
}

INSTANTIATE_TEST_SUITE_P(Storage, Moments,
                         testing::Values("fp16", "e4m3", "e4m3_128x128", "mxfp8",
                                         "nvfp4"),
                         [](const auto &info) { return info.param; });

/// Of the model for 512 samples, so that values count for more than updates.
int64_t stepBytes(const TrainingSpec &spec) {
  std::string model = blocks;
  for (auto [from, to] :
       {std::pair<std::string, std::string>{"tensor<32x", "tensor<512x"},
        {"tensor<32xi64>", "tensor<512xi64>"},
        {"array<i64: 32, 128>", "array<i64: 512, 128>"}})
    for (size_t at = model.find(from); at != std::string::npos; at = model.find(from))
      model.replace(at, from.size(), to);
  PlanFolder folder;
  Compiled compiled = compileText(model, optionsFor(spec, folder.file("m.plan")));
  EXPECT_TRUE(compiled.status.ok()) << compiled.status.message;
  return compiled.report.stepBytes;
}

/// Of the values that are kept only codes are: a quarter.
TEST(Storage, SavedValuesMakeTheStepSmaller) {
  constexpr int64_t kept = 4 * 512 * 128; // input, or result, of the activation
  int64_t whole = stepBytes(specWith({}));
  EXPECT_LT(stepBytes(specWith({saved("mxfp8")})), whole - kept / 2);
}

/// Scales change with updates alone: neither with what runs again, nor with fusion.
TEST(Storage, DelayedScalesAreTheSameUnderRecomputeAndAccumulation) {
  for (int64_t accumulate : {1, 2}) {
    StorageRule weights = stored("e4m3", "*weight"), values = saved("e5m2");
    weights.isDelayed = values.isDelayed = true;
    TrainingSpec spec = specWith({weights, values});
    spec.accumulate = accumulate;
    State kept = trainedWith(spec);
    ASSERT_TRUE(kept.contains("scale/fc1.weight/history"));
    ASSERT_TRUE(kept.contains("scale/saved/act/history"));
    EXPECT_NE(kept["scale/saved/act/history"], std::string(64, '\0'));
    spec.recompute = "sqrt";
    EXPECT_EQ(different(kept, trainedWith(spec, 3)), std::vector<std::string>());
    for (StorageRule &rule : spec.precision.rules)
      rule.isDelayed = false;
    EXPECT_NE(trainedWith(spec)["param/fc1.weight"], kept["param/fc1.weight"]);
  }
}

/// The newest largest magnitude comes first, one for each update.
TEST(Storage, AHistoryHasOneEntryPerUpdate) {
  StorageRule rule = saved("e4m3", "act");
  rule.isDelayed = true;
  for (int64_t accumulate : {1, 2}) {
    TrainingSpec spec = specWith({rule});
    spec.accumulate = accumulate;
    State state = trainedWith(spec); // four micro-batches
    std::string bytes = state["scale/saved/act/history"];
    ASSERT_EQ(bytes.size(), 64u);
    int entries = 0;
    for (int i = 0; i < 16; ++i) {
      float value;
      std::memcpy(&value, bytes.data() + 4 * i, 4);
      entries += value > 0;
      EXPECT_EQ(value > 0, i < 4 / accumulate) << i;
    }
    EXPECT_EQ(entries, 4 / accumulate);
  }
}

TEST(Storage, PartsAreSplitByDepth) {
  StorageRule rule;
  rule.match = "*";
  rule.storage = {"mxfp8", "bf16"};
  Trained model(blocks, specWith({rule}));
  ASSERT_TRUE(model.good) << model.errors;
  auto formatOf = [&](const std::string &name) {
    auto parameter = model.module->lookupSymbol<graph::ParameterOp>("param/" + name);
    auto format = parameter->getAttrOfType<mlir::StringAttr>("graph.format");
    return format ? format.str() : "none";
  };
  EXPECT_EQ(formatOf("table"), "mxfp8"); // used first
  EXPECT_EQ(formatOf("fc1.weight"), formatOf("fc1.bias"));
  EXPECT_EQ(formatOf("fc2.weight"), "bf16");
}

TEST(Storage, LaterRulesWin) {
  StorageRule keep;
  keep.match = "fc1.*";
  keep.isKept = true;
  Trained model(blocks, specWith({stored("mxfp4"), keep, stored("nvfp4", "fc2.*")}));
  ASSERT_TRUE(model.good) << model.errors;
  auto type = [&](const std::string &name) {
    return model.module->lookupSymbol<graph::ParameterOp>("param/" + name)
        .getTensorType();
  };
  EXPECT_TRUE(type("fc1.weight").getElementType().isF32());
  EXPECT_EQ(type("table").getNumElements(), 16 * 64 / 2);
  EXPECT_EQ(model.at("scale/fc2.weight/tensor").reals.size(), 1u);
}

TEST(Storage, RulesWithoutEffectAreErrors) {
  auto errors = [](StorageRule rule) { return Trained(blocks, specWith({rule})).errors; };
  EXPECT_ERROR(
      errors(stored("mxfp8", "fc9.*")),
      "'precision.rules': 'fc9.*' matches no parameter of the model; nearest: 'fc");
  StorageRule part = stored("mxfp8", "");
  part.part = "image";
  EXPECT_ERROR(errors(part), "no parameter has 'image' as an element of its name");
  EXPECT_ERROR(errors(saved("mxfp8", "nothing")),
               "the backward part reads no value of a node that 'nothing' matches");
}

} // namespace
} // namespace sluice
