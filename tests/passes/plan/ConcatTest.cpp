// Case M10: layers that read all that came before them, joined. What is joined is read
// from its parts, so nothing is copied that grows with the square of the layers; and
// every step is the interpreter's.

#include "ir/plan/Plan.h"
#include "kernels/MoveParams.h"
#include "kernels/Params.h"
#include "tests/passes/plan/DenseBlock.h"
#include "tests/passes/plan/OperationCase.h"
#include "tests/passes/plan/StepCheck.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

using models::DenseBlock;
using models::denseBlock;

DenseBlock uneven(int64_t layers) {
  DenseBlock block;
  for (int64_t i = 0; i < layers; ++i)
    block.growth.push_back(1 + i * 5 % 3);
  return block;
}

struct Counted {
  std::map<std::string, int64_t> copied; // elements that launches only copy, by entry
  int64_t activations = 0;               // bytes at the peak of the step
};

/// Of the plan as it is before kernels are generated.
Counted count(const std::string &model, bool fuse,
              std::vector<std::string> entries = {"step", "eval", "infer"}) {
  auto module = mlir::parseSourceString<mlir::ModuleOp>(model, &graph::context());
  bool trains = llvm::is_contained(entries, "step");
  CompileOptions options = optionsFor(trains ? classification() : TrainingSpec(), "");
  options.spec.entries = entries;
  options.fuse = fuse;
  options.stopAfter = CompileStage::Plan;
  CompileReport report;
  Status status = compileModule(*module, options, report);
  EXPECT_TRUE(status.ok()) << status.message;
  Counted counted;
  module->walk([&](plan::StageOp stage) {
    if (stage.getKernel() != "copy_strided")
      return;
    auto params = unpackParams<CopyParams>(stage.getParams().data());
    int64_t elements = 1;
    for (int64_t size : params.dims)
      elements *= size;
    counted.copied[stage->getParentOfType<plan::ProgramOp>().getEntry().str()] +=
        elements;
  });
  for (auto program : module->getOps<plan::ProgramOp>())
    if (auto peak = program.getPeak(); peak && program.getEntry() == "step")
      if (auto bytes = peak->getAs<mlir::IntegerAttr>("activations"))
        counted.activations = bytes.getInt();
  return counted;
}

TEST(Concat, CopiesGrowWithTheLayersNotWithTheirSquare) {
  for (int64_t batch : {1, 3}) {
    DenseBlock few, many;
    few.batch = many.batch = batch;
    few.channels = many.channels = 12;
    few.growth.assign(8, 4);
    many.growth.assign(16, 4);
    Counted half = count(denseBlock(few), true), whole = count(denseBlock(many), true);
    Counted split = count(denseBlock(many), false, {"step"});
    int64_t added = 16 * 4 * batch * few.size * few.size;
    for (const char *entry : {"step", "eval", "infer"}) {
      SCOPED_TRACE(entry + (" at batch " + std::to_string(batch)));
      EXPECT_LE(whole.copied[entry], 2.2 * half.copied[entry]);
      // At most the gradients of what each layer adds, for the convolution that made it.
      EXPECT_LE(whole.copied[entry], 1.5 * added);
    }
    EXPECT_GT(split.copied["step"], 5 * added); // as every layer's copy is
  }
}

TEST(Concat, PartsNeedLessMemoryThanTheirCopies) {
  DenseBlock block;
  block.channels = 12;
  block.growth.assign(10, 4);
  int64_t bytes = 0, channels = block.channels;
  for (int64_t growth : block.growth)
    bytes += (channels += growth) * block.batch * block.size * block.size * 4;
  // For the backward part lies what each layer has activated, but no copy of what it
  // read.
  EXPECT_LT(count(denseBlock(block), true).activations, 1.5 * bytes);
  EXPECT_GT(count(denseBlock(block), false).activations, 2 * bytes);
}

/// A fire module behind another one, and a convolution that needs them joined.
const std::string fire = R"(
  %e = graph.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_begin = array<i64: 0, 0>, pads_end = array<i64: 0, 0>, groups = 1 : i64} : (tensor<1x4x8x8xf32>, tensor<4x4x1x1xf32>) -> tensor<1x4x8x8xf32>
  %a = graph.relu %e : (tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  %f = graph.conv %x, %v {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_begin = array<i64: 1, 1>, pads_end = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x4x8x8xf32>, tensor<4x4x3x3xf32>) -> tensor<1x4x8x8xf32>
  %b = graph.tanh %f : (tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  %j = graph.concat %a, %b {axis = 1 : i64} : (tensor<1x4x8x8xf32>, tensor<1x4x8x8xf32>) -> tensor<1x8x8x8xf32>
  %c = graph.conv %j, %u {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_begin = array<i64: 1, 1>, pads_end = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x8x8x8xf32>, tensor<4x8x3x3xf32>) -> tensor<1x4x8x8xf32>
  %k = graph.concat %j, %c, %a {axis = 1 : i64} : (tensor<1x8x8x8xf32>, tensor<1x4x8x8xf32>, tensor<1x4x8x8xf32>) -> tensor<1x16x8x8xf32>
  %d = graph.conv %k, %t {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_begin = array<i64: 0, 0>, pads_end = array<i64: 0, 0>, groups = 1 : i64} : (tensor<1x16x8x8xf32>, tensor<64x16x1x1xf32>) -> tensor<1x64x8x8xf32>
  %y = graph.exp %d : (tensor<1x64x8x8xf32>) -> tensor<1x64x8x8xf32>
)";
const std::string fireInputs =
    "(%x: tensor<1x4x8x8xf32> {graph.name = \"x\"}, %w: tensor<4x4x1x1xf32> {graph.name "
    "= \"w\"}, %v: tensor<4x4x3x3xf32> {graph.name = \"v\"}, %u: tensor<4x8x3x3xf32> "
    "{graph.name = \"u\"}, %t: tensor<64x16x1x1xf32> {graph.name = \"t\"}) -> "
    "(tensor<1x64x8x8xf32> {graph.name = \"y\"}";

TEST(Concat, PartsAreWrittenWhereAConvolutionReadsThem) {
  std::string signature = fireInputs + ")";
  std::string body = fire + "  return %y : tensor<1x64x8x8xf32>";
  // %a lies in both, so one of its copies stays.
  int64_t once = 4 * 8 * 8;
  EXPECT_LE(count("func.func @forward" + signature + " {" + body + "\n}", true, {"infer"})
                .copied["infer"],
            once);
  expectSame(signature, body);
}

TEST(Concat, WhatIsAResultOrWrittenAgainStaysApart) {
  expectSame(fireInputs + ", tensor<1x8x8x8xf32> {graph.name = \"j\"}, "
                          "tensor<1x4x8x8xf32> {graph.name = \"a\"}, "
                          "tensor<1x8x8x8xf32> {graph.name = \"l\"})",
             fire +
                 R"(  %l = graph.sigmoid %j : (tensor<1x8x8x8xf32>) -> tensor<1x8x8x8xf32>
  return %y, %j, %a, %l : tensor<1x64x8x8xf32>, tensor<1x8x8x8xf32>, tensor<1x4x8x8xf32>, tensor<1x8x8x8xf32>)");
}

TEST(Concat, TrainsLikeTheInterpreter) {
  for (int64_t layers : {1, 6}) {
    SCOPED_TRACE(layers);
    expectTrainsLikeInterpreter(denseBlock(uneven(layers)), classification(), 3, 1e-4);
  }
}

TEST(Concat, ThirtyPartsTrainLikeTheInterpreter) {
  DenseBlock block = uneven(29);
  block.batch = block.channels = 1;
  expectTrainsLikeInterpreter(denseBlock(block), classification("adamw"), 1, 5e-4);
}

TEST(Concat, Bf16TrainsLikeTheInterpreter) {
  TrainingSpec spec = classification("adamw");
  spec.precision.compute = "amp_bf16";
  spec.precision.master = "split";
  expectTrainsLikeInterpreter(denseBlock(uneven(4)), spec, 2, 3e-2);
}

TEST(Concat, NoDecisionChangesABit) {
  for (const char *compute : {"fp32", "amp_bf16"}) {
    SCOPED_TRACE(compute);
    TrainingSpec spec = classification("adamw");
    spec.precision.compute = compute;
    if (spec.precision.compute != "fp32")
      spec.precision.master = "split";
    std::string model = denseBlock(uneven(3));
    auto bits = trainedBits(model, spec, true, 1);
    ASSERT_FALSE(bits.empty());
    EXPECT_EQ(bits, trainedBits(model, spec, true, 3));
    EXPECT_EQ(bits, trainedBits(model, spec, false, 2));
    spec.recompute = "every";
    EXPECT_EQ(bits, trainedBits(model, spec, true, 2));
  }
}

} // namespace
} // namespace sluice
