// Losses that take their logits by blocks of rows: the same bits as from all of them.

#include "tests/passes/plan/TrainedState.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

/// 6 samples of 100 tokens: 600 rows, two blocks of 256 and one of 88.
const std::string head = R"(
graph.parameter @"param/in" : tensor<50x16xf32> "parameter"
graph.parameter @"param/w" : tensor<16x16xf32> "parameter"
graph.parameter @"param/out" : tensor<OUT> "parameter"
func.func @forward(%x: tensor<6x100xi64> {graph.name = "x", graph.batched, graph.bounds = array<i64: 0, 49>}) -> (tensor<6x100x50xf32> {graph.name = "logits"}) {
  %in = graph.read @"param/in" : tensor<50x16xf32>
  %w = graph.read @"param/w" : tensor<16x16xf32>
  %out = graph.read @"param/OWNER" : tensor<OUT>
  %0 = graph.gather %in, %x {axis = 0 : i64} : (tensor<50x16xf32>, tensor<6x100xi64>) -> tensor<6x100x16xf32>
  %1 = graph.contract %0, %w {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 2>, rhs_contract = array<i64: 0>} : (tensor<6x100x16xf32>, tensor<16x16xf32>) -> tensor<6x100x16xf32>
  %2 = graph.tanh %1 : (tensor<6x100x16xf32>) -> tensor<6x100x16xf32>
  %3 = graph.contract %2, %out {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 2>, rhs_contract = array<i64: CONTRACT>} : (tensor<6x100x16xf32>, tensor<OUT>) -> tensor<6x100x50xf32>
  return %3 : tensor<6x100x50xf32>
})";

/// The same with a bias, which exporters add on either side.
std::string withBias(std::string model, bool first) {
  size_t at = model.find("func.func");
  model.insert(at, "graph.parameter @\"param/bias\" : tensor<50xf32> \"parameter\"\n");
  at = model.find("  return %3");
  model.replace(
      at, std::string::npos,
      R"(
  %4 = graph.read @"param/bias" : tensor<50xf32>
  %5 = graph.broadcast %4 {shape = array<i64: 6, 100, 50>} : (tensor<50xf32>) -> tensor<6x100x50xf32>
  %6 = graph.add )" +
          std::string(first ? "%5, %3" : "%3, %5") +
          R"( : (tensor<6x100x50xf32>, tensor<6x100x50xf32>) -> tensor<6x100x50xf32>
  return %6 : tensor<6x100x50xf32>
})");
  return model;
}

enum class Weight { Rows, Columns, Tied };

std::string modelOf(Weight weight) {
  std::string text = head;
  auto replace = [&](const std::string &from, const std::string &to) {
    for (size_t at; (at = text.find(from)) != std::string::npos;)
      text.replace(at, from.size(), to);
  };
  replace("OUT", weight == Weight::Columns ? "16x50xf32" : "50x16xf32");
  replace("CONTRACT", weight == Weight::Columns ? "0" : "1");
  replace("OWNER", weight == Weight::Tied ? "in" : "out");
  return text;
}

CompileOptions plainOptions() {
  CompileOptions options;
  options.spec.loss.kind = "cross_entropy";
  options.spec.loss.logits = "logits";
  options.spec.optimizer = optimizerDefaults("adamw");
  options.spec.threads = 2;
  options.levels = {"x86-64-v3"};
  return options;
}

bool isChunked(const CompileReport &report) {
  return llvm::any_of(report.notes, [](const std::string &note) {
    return note.starts_with("logits: the loss takes its 600 rows of 50 logits 256 at");
  });
}

/// By blocks with one worker and with two, against all logits at once.
void expectSameBits(const std::string &model, CompileOptions options) {
  PlanFolder folder;
  options.outPath = folder.file("whole.plan");
  Compiled whole = compileText(model, options);
  ASSERT_TRUE(whole.status.ok()) << whole.status.message;
  EXPECT_FALSE(isChunked(whole.report));
  State expected = trained(options.outPath, 2);
  ASSERT_FALSE(expected.empty());
  options.spec.logitsBytes = 256 * 50 * 4;
  options.outPath = folder.file("blocks.plan");
  Compiled blocks = compileText(model, options);
  ASSERT_TRUE(blocks.status.ok()) << blocks.status.message;
  EXPECT_TRUE(isChunked(blocks.report));
  const std::vector<std::string> none;
  EXPECT_EQ(different(expected, trained(options.outPath, 1)), none);
  EXPECT_EQ(different(expected, trained(options.outPath, 2)), none);
  if (options.spec.precision.compute == "fp32" && !options.spec.budgetBytes)
    EXPECT_LE(blocks.report.stepBytes, whole.report.stepBytes);
}

TEST(ChunkLogits, OfAnyWeight) {
  for (Weight weight : {Weight::Rows, Weight::Columns, Weight::Tied}) {
    SCOPED_TRACE(static_cast<int>(weight));
    expectSameBits(modelOf(weight), plainOptions());
  }
}

/// As exporters write a tied matrix, whose gradient is transposed last of all.
std::string transposed(std::string model) {
  auto replace = [&](const std::string &from, const std::string &to) {
    model.replace(model.find(from), from.size(), to);
  };
  replace("  %3 = graph.contract %2, %out",
          "  %t = graph.transpose %out {permutation = array<i64: 1, 0>} : "
          "(tensor<50x16xf32>) -> tensor<16x50xf32>\n  %3 = graph.contract %2, %t");
  replace("rhs_contract = array<i64: 1>} : (tensor<6x100x16xf32>, tensor<50x16xf32>)",
          "rhs_contract = array<i64: 0>} : (tensor<6x100x16xf32>, tensor<16x50xf32>)");
  return model;
}

/// 600 rows are nine blocks of 64 and one of 24: of its sums the bias' gradient consists.
TEST(ChunkLogits, WithABias) {
  expectSameBits(withBias(modelOf(Weight::Tied), false), plainOptions());
  expectSameBits(withBias(transposed(modelOf(Weight::Tied)), true), plainOptions());
  CompileOptions options = plainOptions();
  options.spec.precision.compute = "amp_bf16";
  expectSameBits(withBias(modelOf(Weight::Columns), true), options);
  options.fuse = false;
  options.spec.clip = {"global_norm", 0.5};
  expectSameBits(withBias(modelOf(Weight::Rows), false), options);
}

TEST(ChunkLogits, OfEveryCrossEntropy) {
  CompileOptions options = plainOptions();
  options.spec.loss.ignoreIndex = 3;
  options.spec.loss.labelSmoothing = 0.1;
  expectSameBits(modelOf(Weight::Rows), options);
  for (int i = 0; i < 50; ++i)
    options.spec.loss.classWeights.push_back(0.5 + 0.01 * i);
  expectSameBits(modelOf(Weight::Tied), options);
}

TEST(ChunkLogits, WithClipScaleAndAccumulation) {
  CompileOptions options = plainOptions();
  options.spec.clip = {"global_norm", 0.5};
  expectSameBits(modelOf(Weight::Tied), options);
  options.spec.accumulate = 2;
  expectSameBits(modelOf(Weight::Rows), options);
  options = plainOptions();
  options.spec.lossScale.kind = "dynamic";
  expectSameBits(modelOf(Weight::Columns), options);
}

TEST(ChunkLogits, InSixteenBits) {
  for (const char *compute : {"amp_bf16", "amp_fp16"}) {
    CompileOptions options = plainOptions();
    options.spec.precision.compute = compute;
    if (std::string(compute) == "amp_fp16")
      options.spec.lossScale.kind = "dynamic";
    expectSameBits(modelOf(Weight::Rows), options);
    expectSameBits(modelOf(Weight::Tied), options);
  }
}

TEST(ChunkLogits, UnfusedAndRecomputed) {
  CompileOptions options = plainOptions();
  options.fuse = false;
  expectSameBits(modelOf(Weight::Rows), options);
  options = plainOptions();
  options.spec.recompute = "every";
  expectSameBits(modelOf(Weight::Rows), options);
}

/// The logits of a block, and one gradient of them or the next, are all there is.
TEST(ChunkLogits, SaveTheirBytes) {
  PlanFolder folder;
  CompileOptions options = plainOptions();
  options.spec.threads = 1;
  options.outPath = folder.file("m.plan");
  int64_t bytes[2];
  for (int64_t i : {0, 1}) {
    options.spec.logitsBytes = i ? 256 * 50 * 4 : 1 << 30;
    Compiled compiled = compileText(modelOf(Weight::Rows), options);
    ASSERT_TRUE(compiled.status.ok()) << compiled.status.message;
    bytes[i] = compiled.report.stepBytes;
  }
  EXPECT_LE(bytes[1], bytes[0] - (600 - 2 * 256) * 50 * 4);
}

/// What reads logits beside the loss has all of them.
TEST(ChunkLogits, NotWhereOthersReadThem) {
  std::string model = modelOf(Weight::Rows);
  model.replace(
      model.find("  return %3"), std::string::npos,
      R"(  %4 = graph.reduce %3 {kind = "sum", axes = array<i64: 0, 1>} : (tensor<6x100x50xf32>) -> tensor<50xf32>
  return %3, %4 : tensor<6x100x50xf32>, tensor<50xf32>
})");
  size_t at = model.find(") {\n  %in");
  model.insert(at, ", tensor<50xf32> {graph.name = \"sums\"}");
  CompileOptions options = plainOptions();
  options.spec.logitsBytes = 256 * 50 * 4;
  PlanFolder folder;
  options.outPath = folder.file("m.plan");
  Compiled compiled = compileText(model, options);
  ASSERT_TRUE(compiled.status.ok()) << compiled.status.message;
  EXPECT_TRUE(isChunked(compiled.report)); // the step does not compute the sums
  options.spec.loss.kind = "mse";
  compiled = compileText(model, options);
  ASSERT_TRUE(compiled.status.ok()) << compiled.status.message;
  EXPECT_FALSE(isChunked(compiled.report));
}

} // namespace
} // namespace sluice
