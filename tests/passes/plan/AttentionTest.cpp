// Attention that is recognised in a model: it computes what the model's own operations
// do, and no choice of threads, fusion or memory changes its bits.

#include "tests/passes/plan/AttentionModel.h"
#include "tests/passes/plan/StepCheck.h"

namespace sluice {
namespace {

using models::AttentionLayer;
using models::attentionLayer;
using Mask = AttentionLayer::Mask;
using Scale = AttentionLayer::Scale;

int64_t attentions(Trained &trained, const std::string &entry) {
  int64_t count = 0;
  trained.entry(entry).walk([&](graph::AttentionOp) { ++count; });
  return count;
}

/// The only attention of a step; its causal rule and whether it has a mask.
graph::AttentionOp attentionOf(Trained &trained) {
  graph::AttentionOp found;
  trained.entry("step").walk([&](graph::AttentionOp op) { found = op; });
  return found;
}

/// Random inputs; a key mask hides the last third of the keys, of sample 1 all.
Values inputsFor(const AttentionLayer &layer) {
  Values inputs{
      {"x", uniform({layer.batch, layer.length, layer.heads * layer.size}, -1, 1, 4)}};
  std::vector<int64_t> labels(layer.batch * layer.length);
  for (size_t i = 0; i < labels.size(); ++i)
    labels[i] = i % 5;
  inputs["labels"] = integer({layer.batch, layer.length}, labels);
  HostTensor &mask = inputs["m"] = uniform({layer.batch, 1, 1, layer.length});
  for (int64_t i = 0; i < mask.size(); ++i)
    mask.reals[i] =
        i % layer.length >= layer.length * 2 / 3 || i >= layer.length ? layer.fill : 0;
  return inputs;
}

std::vector<AttentionLayer> layers() {
  std::vector<AttentionLayer> all;
  for (Scale scale : {Scale::Product, Scale::Division, Scale::Query, Scale::Both})
    all.push_back({.scale = scale});
  for (Mask mask : {Mask::Where, Mask::Triangle, Mask::Keys, Mask::WhereKeys})
    all.push_back({.mask = mask});
  all.push_back({.mask = Mask::Triangle, .fill = -1e9});
  all.push_back({.kvHeads = 2});
  all.push_back({.kvHeads = 1, .mask = Mask::Where});
  all.push_back({.mask = Mask::Where, .ratio = 0.25});
  return all;
}

/// Loss, logits and gradients equal those of the operations as the model has them. All in
/// double, but for constants.
TEST(FusedAttention, IsWhatTheModelSays) {
  for (AttentionLayer layer : layers()) {
    SCOPED_TRACE(attentionLayer(layer));
    TrainingSpec spec = descent("cross_entropy");
    spec.loss.logits = "logits";
    Trained fused(attentionLayer(layer), spec);
    layer.isRead = true;
    Trained plain(attentionLayer(layer), spec);
    ASSERT_TRUE(fused.good && plain.good) << fused.errors << plain.errors;
    ASSERT_EQ(attentions(fused, "step"), 1) << attentionLayer(layer);
    EXPECT_EQ(attentions(fused, "infer"), 1);
    ASSERT_EQ(attentions(plain, "step"), 0);
    Values inputs = inputsFor(layer);
    for (Trained *each : {&fused, &plain}) {
      each->randomize();
      each->set("control/sample", 6);
      each->set("control/seed", 3);
    }
    HostTensor expected = plain.run("infer", inputs)["logits"];
    expectReals(fused.run("infer", inputs)["logits"], expected.reals, 1e-6);
    Values a = fused.run("step", inputs), b = plain.run("step", inputs);
    EXPECT_NEAR(scalar(a, "loss_sum"), scalar(b, "loss_sum"), 1e-4);
    for (const char *name : {"param/qkv", "param/head"})
      expectReals(fused.at(name), plain.at(name).reals, 1e-6);
  }
}

TEST(FusedAttention, KnowsTriangles) {
  for (auto [mask, causal, masked] :
       {std::tuple(Mask::None, false, false), std::tuple(Mask::Where, true, false),
        std::tuple(Mask::Triangle, true, false), std::tuple(Mask::Keys, false, true),
        std::tuple(Mask::WhereKeys, true, true)}) {
    TrainingSpec spec = classification();
    Trained trained(attentionLayer({.mask = mask}), spec);
    graph::AttentionOp op = attentionOf(trained);
    ASSERT_TRUE(op);
    EXPECT_EQ(op.getCausal().has_value(), causal);
    EXPECT_EQ(bool(op.getMask()), masked);
    EXPECT_EQ(op.getScale().convertToDouble(), 0.25);
  }
}

TEST(FusedAttention, SharesKeyHeads) {
  Trained trained(attentionLayer({.kvHeads = 2}), classification());
  graph::AttentionOp op = attentionOf(trained);
  ASSERT_TRUE(op);
  EXPECT_EQ(graph::tensorType(op.getK()).getDimSize(1), 2);
  EXPECT_EQ(graph::tensorType(op.getQ()).getDimSize(1), 4);
}

/// A fill that does not hide in every row must keep its value.
TEST(FusedAttention, LeavesWhatItCouldNotGive) {
  EXPECT_FALSE(attentionOf(*std::make_unique<Trained>(
      attentionLayer({.length = 40, .isRead = true}), classification())));
  Trained weak(attentionLayer({.mask = Mask::Triangle, .fill = -10}), classification());
  graph::AttentionOp op = attentionOf(weak);
  ASSERT_TRUE(op);
  EXPECT_FALSE(op.getCausal());
  EXPECT_TRUE(op.getMask());
  Trained few(attentionLayer({.length = 8}), classification());
  EXPECT_FALSE(attentionOf(few));
  auto report = (*few.module)->getAttrOfType<mlir::ArrayAttr>("graph.report");
  ASSERT_TRUE(report);
  std::string lines;
  for (auto line : report.getAsRange<mlir::StringAttr>())
    lines += line.str() + "\n";
  EXPECT_NE(
      lines.find("attention: 0 of 1 computed without storing its scores; the others "
                 "have few queries or keys"),
      std::string::npos)
      << lines;
}

TEST(FusedAttention, TrainsLikeTheInterpreter) {
  for (const AttentionLayer &layer : layers())
    expectTrainsLikeInterpreter(attentionLayer(layer), classification("adamw"), 2, 1e-4);
}

TEST(FusedAttention, TrainsLikeTheInterpreterInSixteenBits) {
  for (const char *compute : {"amp_bf16", "amp_fp16"})
    for (const AttentionLayer &layer :
         {AttentionLayer{.mask = Mask::WhereKeys}, AttentionLayer{.kvHeads = 2},
          AttentionLayer{.mask = Mask::Where, .ratio = 0.25}}) {
      TrainingSpec spec = classification();
      spec.precision.compute = compute;
      expectTrainsLikeInterpreter(attentionLayer(layer), spec, 2, 2e-2);
    }
}

TEST(FusedAttention, NothingChangesItsBits) {
  for (const char *compute : {"fp32", "amp_bf16"})
    for (AttentionLayer layer : {AttentionLayer{.length = 70, .mask = Mask::Where},
                                 AttentionLayer{.kvHeads = 2, .ratio = 0.25}}) {
      TrainingSpec spec = classification("adamw");
      spec.precision.compute = compute;
      auto bits = trainedBits(attentionLayer(layer), spec, true, 1);
      ASSERT_FALSE(bits.empty());
      EXPECT_EQ(bits, trainedBits(attentionLayer(layer), spec, true, 3));
      EXPECT_EQ(bits, trainedBits(attentionLayer(layer), spec, false, 2));
      spec.recompute = "every";
      EXPECT_EQ(bits, trainedBits(attentionLayer(layer), spec, true, 2));
    }
}

/// Where it is taken, a step needs no more memory than with stored scores, and gradients
/// take the bytes of what they are gradients of: the joint projection's too.
TEST(FusedAttention, NeedsNoMoreMemory) {
  for (AttentionLayer layer :
       {AttentionLayer{.batch = 8, .length = 32, .heads = 2, .kvHeads = 2, .size = 32},
        AttentionLayer{.batch = 8, .length = 64, .size = 32},
        AttentionLayer{.batch = 8, .length = 64, .kvHeads = 2, .size = 32},
        AttentionLayer{.length = 200, .size = 16, .mask = Mask::Where}}) {
    std::vector<int64_t> bytes;
    for (bool isRead : {false, true}) {
      layer.isRead = isRead;
      PlanFolder folder;
      CompileOptions options = optionsFor(classification(), folder.file("m.plan"));
      options.spec.entries = {"step"};
      options.spec.threads = 1;
      Compiled compiled = compileText(attentionLayer(layer), options);
      ASSERT_TRUE(compiled.status.ok()) << compiled.status.message;
      bytes.push_back(compiled.report.stepBytes);
    }
    EXPECT_LE(bytes[0], bytes[1]) << layer.length << " x " << layer.size;
  }
}

} // namespace
} // namespace sluice
