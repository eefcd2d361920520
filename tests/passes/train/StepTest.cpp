// Whole training steps against central differences, and what an update does to the state.

#include "tests/passes/train/Models.h"
#include "tests/passes/train/TrainFixture.h"

using namespace mlir;
using namespace sluice;

namespace {

Values mlpBatch() {
  return {{"x", uniform({4, 5}, -2, 2, 50)}, {"labels", integer({4}, {0, 2, 1, 2})}};
}
Values cnnBatch() {
  return {{"x", uniform({4, 2, 4, 4}, -1, 1, 50)},
          {"labels", integer({4}, {0, 2, 1, 2})}};
}
Values lineBatch(std::vector<double> x, std::vector<double> labels = {0, 0, 0}) {
  return {{"x", real({3, 1}, std::move(x))}, {"labels", real({3, 1}, std::move(labels))}};
}

TEST(Step, OfAnMlpFollowsTheGradient) {
  TrainingSpec spec = descent("cross_entropy");
  spec.loss.labelSmoothing = 0.1;
  Trained trained(models::mlp, spec);
  trained.randomize();
  expectStepIsGradient(trained, mlpBatch());
}

TEST(Step, OfACnnWithStatisticsAndDropoutFollowsTheGradient) {
  Trained trained(models::cnn, descent("cross_entropy"));
  trained.randomize();
  expectStepIsGradient(trained, cnnBatch());
}

// I14: indices are never differentiated; the table is.
TEST(Step, OfAnEmbeddingFollowsTheGradient) {
  Trained trained(models::embedding, descent("cross_entropy"));
  trained.randomize();
  Values batch{{"ids", integer({2, 3}, {4, 0, 4, 1, -1, 2})},
               {"labels", integer({2, 3}, {1, 2, -100, 0, 4, 3})}};
  expectStepIsGradient(trained, batch);
  auto bounds =
      trained.entry("step").getArgAttrOfType<DenseI64ArrayAttr>(0, "graph.bounds");
  ASSERT_TRUE(bounds);
  EXPECT_EQ(bounds.asArrayRef(), ArrayRef<int64_t>({-5, 4}));
}

TEST(Step, OfEveryLossFollowsTheGradient) {
  for (const char *kind :
       {"mse", "l1", "huber", "kl", "bce_with_logits", "sum", "nll", "cross_entropy"}) {
    TrainingSpec spec = descent(kind);
    spec.loss.posWeight = 3;
    spec.loss.delta = 0.5;
    Trained trained(models::mlp, spec);
    trained.randomize();
    Values batch = mlpBatch();
    if (llvm::is_contained({"mse", "l1", "huber", "kl", "bce_with_logits"},
                           StringRef(kind)))
      batch["labels"] = uniform({4, 3}, 0, 1, 9);
    SCOPED_TRACE(kind);
    expectStepIsGradient(trained, batch);
  }
}

TEST(Step, OfCtcFollowsTheGradient) {
  for (bool lengths : {false, true}) {
    TrainingSpec spec = descent("ctc");
    spec.loss.targetSize = 2;
    spec.loss.inputLengths = lengths ? "frames" : "";
    spec.loss.targetLengths = lengths ? "sizes" : "";
    spec.loss.logProbs = false;
    Trained trained(models::embedding, spec);
    trained.randomize();
    Values batch{{"ids", integer({2, 3}, {4, 0, 4, 1, -1, 2})},
                 {"labels", integer({2, 2}, {1, 1, 3, -100})},
                 {"frames", integer({2}, {3, 2})},
                 {"sizes", integer({2}, {2, 1})}};
    expectStepIsGradient(trained, batch);
    EXPECT_EQ(scalar(trained.run("eval", batch), "loss_count"), 2);
  }
}

TEST(Step, OfTripletsFollowsTheGradient) {
  std::string parts, results, types;
  for (std::string part : {"a", "p", "n"}) {
    parts += "  %y" + part + " = graph.contract %" + part +
             ", %w {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = "
             "array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<4x5xf32>, "
             "tensor<3x5xf32>) -> tensor<4x3xf32>\n";
    results += (results.empty() ? "%y" : ", %y") + part;
    types += std::string(types.empty() ? "" : ", ") + "tensor<4x3xf32>";
  }
  std::string model = R"(
graph.parameter @"param/w" : tensor<3x5xf32> "parameter"
func.func @forward(%a: tensor<4x5xf32> {graph.name = "a"}, %p: tensor<4x5xf32> {graph.name = "p"}, %n: tensor<4x5xf32> {graph.name = "n"}) -> (tensor<4x3xf32> {graph.name = "ya"}, tensor<4x3xf32> {graph.name = "yp"}, tensor<4x3xf32> {graph.name = "yn"}) {
  %w = graph.read @"param/w" : tensor<3x5xf32>
)" + parts + "  return " +
                      results + " : " + types + "\n}";
  for (int64_t p : {1, 2}) {
    TrainingSpec spec = descent("triplet");
    spec.loss.anchor = "ya", spec.loss.positive = "yp", spec.loss.negative = "yn";
    spec.loss.p = p;
    spec.loss.swap = p == 2;
    spec.loss.margin = 0.5;
    Trained trained(model, spec);
    trained.randomize();
    Values batch{{"a", uniform({4, 5}, -1, 1, 3)},
                 {"p", uniform({4, 5}, -1, 1, 4)},
                 {"n", uniform({4, 5}, -1, 1, 5)}};
    expectStepIsGradient(trained, batch);
  }
}

TEST(Step, RecordsStatisticsOnceAndEvaluatesWithThem) {
  Trained trained(models::cnn, descent("cross_entropy"));
  ASSERT_TRUE(trained.good) << trained.errors;
  trained.randomize();
  trained.at("param/conv.weight").reals.assign(54, 0);
  trained.at("param/conv.weight").reals[4] = 1; // channel 0 copies channel 0 of x
  Values batch = cnnBatch();
  batch["x"].reals.assign(128, 3);
  trained.run("step", batch);
  EXPECT_NEAR(trained.at("param/bn.running_mean").reals[0], 0.3, 1e-7);
  EXPECT_NEAR(trained.at("param/bn.running_var").reals[0], 0.9, 1e-7);
  const HostTensor mean = trained.at("param/bn.running_mean");
  Values first = trained.run("eval", batch), second = trained.run("eval", batch);
  EXPECT_EQ(trained.at("param/bn.running_mean").reals, mean.reals);
  EXPECT_EQ(scalar(first, "loss_sum"), scalar(second, "loss_sum"));
  EXPECT_EQ(first.at("logits").reals, trained.run("infer", batch).at("logits").reals);
}

TEST(Step, DropoutChangesWithTheUpdateAndNotInEvaluation) {
  Trained trained(models::cnn, descent("cross_entropy"));
  trained.randomize();
  const graph::StateMap before = trained.state;
  double first = scalar(trained.run("step", cnnBatch()), "loss_sum");
  trained.state = before;
  EXPECT_EQ(scalar(trained.run("step", cnnBatch()), "loss_sum"), first);
  trained.state = before;
  trained.set("control/update", 1);
  EXPECT_NE(scalar(trained.run("step", cnnBatch()), "loss_sum"), first);
}

/// The state after a step with two valid samples, for two contents of the padding.
void expectPaddingIgnored(Trained &trained, Values batch, const std::string &parameter) {
  ASSERT_TRUE(trained.good) << trained.errors;
  trained.randomize();
  trained.set("control/valid", 2);
  const graph::StateMap before = trained.state;
  EXPECT_EQ(scalar(trained.run("step", batch), "loss_count"), 2);
  const graph::StateMap after = trained.state;
  trained.state = before;
  std::vector<double> &x = batch["x"].reals;
  for (size_t i = x.size() / 2; i < x.size(); ++i)
    x[i] = 100.0 + i;
  batch["labels"].integers[3] = 0;
  trained.run("step", batch);
  EXPECT_NE(after.lookup(parameter).reals, before.lookup(parameter).reals);
  for (const auto &entry : after)
    EXPECT_EQ(trained.at(entry.getKey().str()).reals, entry.second.reals)
        << entry.getKey().str();
}

TEST(Step, IgnoresPadding) {
  Trained mlp(models::mlp, descent("cross_entropy"));
  expectPaddingIgnored(mlp, mlpBatch(), "param/fc1.weight");
  Trained cnn(models::cnn, descent("cross_entropy"));
  expectPaddingIgnored(cnn, cnnBatch(), "param/bn.running_mean");
}

// A1: a mean over all samples, not a mean of means.
TEST(Accumulation, WeighsMicroBatchesByTheirSamples) {
  TrainingSpec spec = descent("mse");
  spec.accumulate = 2;
  Trained trained(models::line, spec);
  ASSERT_TRUE(trained.good) << trained.errors;
  trained.set("control/valid", 1);
  trained.run("micro", lineBatch({1, 1, 1}, {0, 77, 77}));
  trained.set("control/valid", 3);
  trained.run("micro", lineBatch({1, 1, 1}, {1, 1, 1}));
  trained.run("update");
  EXPECT_NEAR(2 - trained.at("param/w").reals[0], 2.5, 1e-12);
}

// A2: a partial window is an update like any other.
TEST(Accumulation, OfAPartialWindowIsNeitherHalvedNorLost) {
  TrainingSpec spec = descent("sum");
  spec.accumulate = 2;
  Trained trained(models::line, spec);
  for (int window : {2, 1}) {
    double before = trained.at("param/w").reals[0];
    for (int i = 0; i < window; ++i)
      trained.run("micro", lineBatch({1, 0, 0}));
    trained.run("update");
    EXPECT_EQ(trained.at("param/w").reals[0], before - 1);
    EXPECT_EQ(trained.at("grad/w").reals[0], 0);
    EXPECT_EQ(trained.at("grad/count").reals[0], 0);
  }
}

TEST(Accumulation, OfAParameterNamedCountKeepsTheTwoApart) {
  std::string model = models::line;
  for (size_t at; (at = model.find("param/w")) != std::string::npos;)
    model.replace(at, 7, "param/count");
  TrainingSpec spec = descent("mse");
  spec.accumulate = 2;
  Trained trained(model, spec);
  ASSERT_TRUE(trained.good) << trained.errors;
  for (int i = 0; i < 2; ++i) {
    trained.set("control/valid", 1);
    trained.run("micro", lineBatch({1, 1, 1}, {double(i), 77, 77}));
  }
  trained.run("update"); // the mean of the gradients 2 (2 - 0) and 2 (2 - 1)
  EXPECT_NEAR(2 - trained.at("param/count").reals[0], 3, 1e-12);
}

TEST(Accumulation, EqualsOneLargeBatch) {
  TrainingSpec spec = descent("cross_entropy");
  Trained whole(models::mlp, spec);
  spec.accumulate = 2;
  Trained split(models::mlp, spec);
  whole.randomize();
  split.randomize();
  whole.run("step", mlpBatch());
  split.set("control/valid", 2);
  split.run("micro", mlpBatch());
  Values second = mlpBatch();
  std::rotate(second["x"].reals.begin(), second["x"].reals.begin() + 10,
              second["x"].reals.end());
  second["labels"].integers = {1, 2, 0, 0};
  split.run("micro", second);
  split.run("update");
  for (size_t i = 0; i < 30; ++i)
    EXPECT_NEAR(split.at("param/fc1.weight").reals[i],
                whole.at("param/fc1.weight").reals[i], 1e-14);
}

// A7: a micro-batch whose labels are all ignored contributes exactly nothing.
TEST(Accumulation, OfIgnoredLabelsContributesNothing) {
  TrainingSpec spec = descent("cross_entropy");
  spec.accumulate = 2;
  Trained trained(models::mlp, spec); // weights 0: logits 0
  ASSERT_TRUE(trained.good) << trained.errors;
  Values batch = mlpBatch();
  batch["labels"].integers = {-100, -100, -100, -100};
  Values first = trained.run("micro", batch);
  EXPECT_EQ(scalar(first, "loss_sum"), 0);
  EXPECT_EQ(scalar(first, "loss_count"), 0);
  EXPECT_EQ(trained.at("grad/fc2.weight").reals, std::vector<double>(18, 0));
  batch["labels"].integers = {-100, 1, -100, -100};
  Values second = trained.run("micro", batch);
  EXPECT_NEAR(scalar(second, "loss_sum") / scalar(second, "loss_count"), 1.0986123, 1e-7);
}

TEST(Accumulation, OfNothingLeavesParametersAlone) {
  TrainingSpec spec = descent("cross_entropy");
  spec.accumulate = 2;
  spec.clip = {"global_norm", 1};
  Trained trained(models::mlp, spec);
  trained.randomize();
  const HostTensor before = trained.at("param/fc1.weight");
  EXPECT_EQ(scalar(trained.run("update"), "grad_norm"), 0);
  EXPECT_EQ(trained.at("param/fc1.weight").reals, before.reals);
}

// A5: the clip acts on the mean gradient, not on the sum.
TEST(Clip, ActsOnTheMeanGradient) {
  TrainingSpec spec = descent("sum");
  spec.accumulate = 4;
  spec.clip = {"global_norm", 1};
  Trained trained(models::line, spec);
  for (int i = 0; i < 4; ++i)
    trained.run("micro", lineBatch({0.5, 0, 0}));
  Values results = trained.run("update");
  EXPECT_NEAR(scalar(results, "grad_norm"), 0.5, 1e-12);
  EXPECT_NEAR(trained.at("param/w").reals[0], 1.5, 1e-12);
}

TEST(Clip, ScalesByTheNormOverAllParameters) {
  TrainingSpec spec = descent("cross_entropy");
  Trained plain(models::mlp, spec);
  spec.clip = {"global_norm", 0.05};
  Trained clipped(models::mlp, spec);
  plain.randomize();
  clipped.randomize();
  const graph::StateMap before = plain.state;
  plain.run("step", mlpBatch());
  double norm = scalar(clipped.run("step", mlpBatch()), "grad_norm"), squares = 0;
  for (const char *name :
       {"param/fc1.weight", "param/fc1.bias", "param/norm.weight", "param/fc2.weight"})
    for (size_t i = 0; i < before.lookup(name).reals.size(); ++i) {
      double start = before.lookup(name).reals[i],
             gradient = start - plain.at(name).reals[i];
      squares += gradient * gradient;
      EXPECT_NEAR(start - clipped.at(name).reals[i], gradient * 0.05 / (norm + 1e-6),
                  1e-9)
          << name;
    }
  EXPECT_NEAR(norm, std::sqrt(squares), 1e-12);
  EXPECT_GT(norm, 0.05);
}

/// A model whose output is its input, times a weight of 1.
const char *identity = R"(
    graph.parameter @"param/s" : tensor<f32> "parameter" {fill = 1.0 : f64}
    func.func @forward(%x: tensor<2x3xf32> {graph.name = "x"}) -> (tensor<2x3xf32> {graph.name = "y"}) {
      %s = graph.read @"param/s" : tensor<f32>
      %b = graph.broadcast %s {shape = array<i64: 2, 3>} : (tensor<f32>) -> tensor<2x3xf32>
      %y = graph.mul %x, %b : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
      return %y : tensor<2x3xf32>
    })";

// F.huber_loss(x, t, delta=1.5) and F.kl_div(x, t, reduction="batchmean") of PyTorch
// 1.13.1; the target of the latter holds a 0.
TEST(Loss, OfHuberAndDivergenceArePyTorchs) {
  TrainingSpec spec = descent("huber");
  spec.loss.delta = 1.5;
  Trained huber(identity, spec), kl(identity, descent("kl"));
  ASSERT_TRUE(huber.good && kl.good) << huber.errors << kl.errors;
  Values batch{{"x", real({2, 3}, {0.5, -1, 3, 0.25, -4, 1.5})},
               {"labels", real({2, 3}, {0.25, 1, 1, 0, 0, 1.75})}};
  EXPECT_NEAR(meanLoss(huber.run("eval", batch)), 1.453125, 1e-7);
  batch = {{"x", real({2, 3}, {-0.5, -1.5, -2, -0.25, -3, -2.5})},
           {"labels", real({2, 3}, {0.2, 0.5, 0.3, 0.9, 0, 0.1})}};
  EXPECT_NEAR(meanLoss(kl.run("eval", batch)), 0.285132004, 1e-7);
}

// A8: the mean divides by the sum of the labels' weights.
TEST(Loss, OfClassWeightsDividesByTheirSum) {
  TrainingSpec spec = descent("cross_entropy");
  spec.loss.classWeights = {0.2, 0.3, 0.5};
  Trained trained(R"(
    graph.parameter @"param/s" : tensor<f32> "parameter" {fill = 1.0 : f64}
    func.func @forward(%x: tensor<2x3xf32> {graph.name = "x"}) -> (tensor<2x3xf32> {graph.name = "y"}) {
      %s = graph.read @"param/s" : tensor<f32>
      %b = graph.broadcast %s {shape = array<i64: 2, 3>} : (tensor<f32>) -> tensor<2x3xf32>
      %y = graph.mul %x, %b : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
      return %y : tensor<2x3xf32>
    })",
                  spec);
  ASSERT_TRUE(trained.good) << trained.errors;
  Values batch{{"x", real({2, 3}, {1, 2, 3, 3, 2, 1})}, {"labels", integer({2}, {0, 1})}};
  EXPECT_NEAR(meanLoss(trained.run("eval", batch)), 1.8076060, 1e-6);
}

TEST(Loss, OfAModelsOwnScalarIsItsMean) {
  TrainingSpec spec = descent("output");
  spec.loss.name = "loss";
  Trained trained(R"(
    graph.parameter @"param/w" : tensor<f32> "parameter" {fill = 2.0 : f64}
    func.func @forward(%x: tensor<4xf32> {graph.name = "x"}) -> (tensor<4xf32> {graph.name = "y"}, tensor<f32> {graph.name = "loss"}) {
      %w = graph.read @"param/w" : tensor<f32>
      %b = graph.broadcast %w {shape = array<i64: 4>} : (tensor<f32>) -> tensor<4xf32>
      %y = graph.mul %x, %b : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      %sum = graph.reduce %y {kind = "sum", axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
      return %y, %sum : tensor<4xf32>, tensor<f32>
    })",
                  spec);
  ASSERT_TRUE(trained.good) << trained.errors;
  Values batch{{"x", real({4}, {1, 2, 3, 4})}};
  EXPECT_NEAR(meanLoss(trained.run("eval", batch)), 20, 1e-12);
  trained.run("step", batch);
  EXPECT_NEAR(trained.at("param/w").reals[0], -8, 1e-12);
  EXPECT_EQ(trained.entry("infer").getNumResults(), 1u);
  EXPECT_TRUE((*trained.module)->hasAttr("graph.full_batches"));
}

// While training: no update, no momentum, no decay, no part in the norm; as if its
// gradients were not there.
TEST(Frozen, GroupsBetweenStepsKeepTheirState) {
  TrainingSpec spec = descent("cross_entropy");
  spec.optimizer.kind = "adamw";
  spec.optimizer.weightDecay = 0.1;
  spec.clip = {"global_norm", 0.01};
  spec.parameterGroups.emplace_back();
  spec.parameterGroups[0].match = "fc1.*";
  spec.parameterGroups[0].options.lr = 0.5, spec.parameterGroups[0].keys = {"lr"};
  Trained trained(models::mlp, spec);
  spec.frozen = {"fc1.*"};
  spec.parameterGroups.clear();
  Trained without(models::mlp, spec);
  ASSERT_TRUE(trained.good && without.good) << trained.errors << without.errors;
  for (Trained *each : {&trained, &without}) {
    each->randomize();
    for (const char *group : {"default", "group1"}) {
      each->set(std::string("control/") + group + "/bc1", 0.1);
      each->set(std::string("control/") + group + "/bc2", 0.001);
    }
  }
  trained.set("control/group1/active", 0);
  const graph::StateMap before = trained.state;
  double norm = scalar(trained.run("step", mlpBatch()), "grad_norm");
  EXPECT_EQ(norm, scalar(without.run("step", mlpBatch()), "grad_norm"));
  for (const char *name : {"param/fc1.weight", "opt/fc1.weight/m", "opt/fc1.bias/v"})
    EXPECT_EQ(trained.at(name).reals, before.lookup(name).reals) << name;
  for (const char *name : {"param/fc2.weight", "opt/fc2.weight/m", "param/norm.weight"})
    EXPECT_EQ(trained.at(name).reals, without.at(name).reals) << name;
}

// R7: what lies behind frozen weights still trains, with the same gradients.
TEST(Frozen, WeightsInFrontDoNotStopTheGradient) {
  TrainingSpec spec = descent("cross_entropy");
  spec.frozen = {"wte"};
  Trained trained(models::embedding, spec);
  trained.randomize();
  Values batch{{"ids", integer({2, 3}, {4, 0, 4, 1, 3, 2})},
               {"labels", integer({2, 3}, {1, 2, 0, 0, 4, 3})}};
  expectStepIsGradient(trained, batch);
  Trained all(models::embedding, descent("cross_entropy"));
  all.randomize();
  trained.run("step", batch);
  all.run("step", batch);
  EXPECT_EQ(trained.at("param/head").reals, all.at("param/head").reals);
  EXPECT_NE(trained.at("param/wte").reals, all.at("param/wte").reals);
}

// R7: frozen weights between the loss and trainable ones pass gradients on and get none.
TEST(Frozen, WeightsBehindPassTheGradientOn) {
  TrainingSpec spec = descent("cross_entropy");
  spec.frozen = {"fc2.*", "norm.*"};
  Trained trained(models::mlp, spec);
  trained.randomize();
  expectStepIsGradient(trained, mlpBatch());
  EXPECT_FALSE(trained.state.contains("opt/fc2.weight/velocity"));
}

// C9: decay does not move what is frozen; moments exist for what trains only.
TEST(Frozen, ParametersStayUnderDecay) {
  TrainingSpec spec = descent("cross_entropy");
  spec.optimizer = OptimizerSpec();
  spec.optimizer.lr = 0.01;
  spec.optimizer.weightDecay = 0.1;
  spec.frozen = {"wte"};
  Trained trained(models::embedding, spec);
  ASSERT_TRUE(trained.good) << trained.errors;
  trained.set("param/wte", 0.5);
  trained.set("param/head", 0.5);
  trained.set("control/default/bc1", 0.1);
  trained.set("control/default/bc2", 0.001);
  Values batch{{"ids", integer({2, 3}, {4, 0, 4, 1, 3, 2})},
               {"labels", integer({2, 3}, {1, 2, 0, 0, 4, 3})}};
  for (int i = 0; i < 10; ++i)
    trained.run("step", batch);
  EXPECT_EQ(trained.at("param/wte").reals, std::vector<double>(20, 0.5));
  EXPECT_FALSE(trained.state.contains("opt/wte/m"));
  EXPECT_TRUE(trained.state.contains("opt/head/m"));
  EXPECT_NE(trained.at("param/head").reals[0], 0.5);
}

// C9, the other half: once masked, momentum does not carry a parameter on (here: frozen
// by its group).
TEST(Optimizer, MomentumMovesByItsVelocity) {
  TrainingSpec spec = descent("sum");
  spec.optimizer.momentum = 0.9;
  spec.optimizer.lr = 0.1;
  Trained trained(models::line, spec);
  trained.run("step", lineBatch({1, 0, 0}));
  EXPECT_NEAR(trained.at("param/w").reals[0], 1.9, 1e-7);
  trained.set("control/update", 1);
  trained.run("step", lineBatch({0, 0, 0}));
  EXPECT_NEAR(trained.at("param/w").reals[0], 1.81, 1e-7);
  EXPECT_NEAR(trained.at("opt/w/velocity").reals[0], 0.9, 1e-7);
}

// S7: Adam's step is the rate at any update whose corrections come from its own count.
TEST(Optimizer, AdamResumesWithItsCount) {
  TrainingSpec spec = descent("sum");
  spec.optimizer.kind = "adam";
  Trained trained(models::line, spec);
  trained.at("opt/w/m").reals = {1 - std::pow(0.9, 10)};
  trained.at("opt/w/v").reals = {1 - std::pow(0.999, 10)};
  trained.set("control/default/bc1", 1 - std::pow(0.9, 11));
  trained.set("control/default/bc2", 1 - std::pow(0.999, 11));
  trained.run("step", lineBatch({1, 0, 0}));
  EXPECT_NEAR(trained.at("param/w").reals[0], 1, 1e-5);
}

} // namespace
