// What the train stage decides about parameters, reports and refuses.

#include "tests/passes/train/Models.h"
#include "tests/passes/train/TrainFixture.h"

using namespace mlir;
using namespace sluice;

namespace {

std::string refusal(const std::string &model, const TrainingSpec &spec) {
  Trained trained(model, spec);
  EXPECT_FALSE(trained.good);
  return trained.errors;
}

TEST(Groups, LaterRulesWinAndEqualOptionsShareAGroup) {
  TrainingSpec spec = descent("cross_entropy");
  ParameterGroupSpec biases, norms, fast;
  biases.match = "*.bias";
  biases.options.weightDecay = 0.5, biases.keys = {"weight_decay"};
  norms.match = "norm.*";
  norms.options.weightDecay = 0.5, norms.keys = {"weight_decay"};
  fast.match = "fc2.*";
  fast.options.lr = 3, fast.keys = {"lr"};
  spec.parameterGroups = {biases, norms, fast};
  Trained trained(models::mlp, spec);
  ASSERT_TRUE(trained.good) << trained.errors;
  auto groupOf = [&](StringRef name) {
    return trained.module->lookupSymbol<graph::ParameterOp>(name).getGroup()->str();
  };
  EXPECT_EQ(groupOf("param/fc1.bias"), "group1");
  EXPECT_EQ(groupOf("param/norm.weight"), "group1");
  EXPECT_EQ(groupOf("param/fc2.weight"), "group3");
  EXPECT_EQ(groupOf("param/fc1.weight"), "default");
  EXPECT_EQ((*trained.module)->getAttrOfType<ArrayAttr>("graph.groups").size(), 3u);
  EXPECT_TRUE(trained.state.contains("control/group3/lr"));
}

TEST(Groups, DecayOfAGroupReachesItsMembersOnly) {
  TrainingSpec spec = descent("cross_entropy");
  ParameterGroupSpec head;
  head.match = "head";
  head.options.weightDecay = 0.5, head.keys = {"weight_decay"};
  spec.parameterGroups = {head};
  Trained trained(models::embedding, spec);
  ASSERT_TRUE(trained.good) << trained.errors;
  trained.set("param/wte", 0); // no features, so no gradient of head
  trained.set("param/head", 1);
  Values batch{{"ids", integer({2, 3}, {0, 0, 0, 0, 0, 0})},
               {"labels", integer({2, 3}, {0, 0, 0, 0, 0, 0})}};
  trained.run("step", batch);
  EXPECT_NEAR(trained.at("param/head").reals[0], 0.5, 1e-12);
  EXPECT_EQ(trained.at("param/wte").reals[19], 0);
}

TEST(Groups, AFrozenGroupDoesNotTrain) {
  TrainingSpec spec = descent("cross_entropy");
  ParameterGroupSpec rule;
  rule.match = "fc1.*";
  rule.frozen = true;
  spec.parameterGroups = {rule};
  Trained trained(models::mlp, spec);
  ASSERT_TRUE(trained.good) << trained.errors;
  EXPECT_FALSE(
      trained.module->lookupSymbol<graph::ParameterOp>("param/fc1.bias").getTrainable());
}

TEST(Groups, RefuseAPatternWithoutAMatch) {
  TrainingSpec spec = descent("cross_entropy");
  spec.frozen = {"encoder.*"};
  EXPECT_ERROR(refusal(models::mlp, spec), "pattern 'encoder.*' of 'frozen' matches no "
                                           "parameter; the first one is 'fc1.bias'");
}

TEST(Groups, RefuseAModelWithNothingToTrain) {
  TrainingSpec spec = descent("cross_entropy");
  spec.frozen = {"*"};
  EXPECT_ERROR(refusal(models::mlp, spec), "no parameter of the model trains (it has 4)");
}

TEST(Loss, RefusesAnOutputTheModelHasNot) {
  TrainingSpec spec = descent("cross_entropy");
  spec.loss.logits = "scores";
  EXPECT_ERROR(refusal(models::mlp, spec),
               "'loss.logits' is 'scores', expected an output of the model: 'logits'");
}

TEST(Loss, AsksForOneOfSeveralOutputs) {
  EXPECT_ERROR(refusal(R"(
    graph.parameter @"param/w" : tensor<2xf32> "parameter"
    func.func @forward(%x: tensor<2xf32> {graph.name = "x"}) -> (tensor<2xf32> {graph.name = "a"}, tensor<2xf32> {graph.name = "b"}) {
      return %x, %x : tensor<2xf32>, tensor<2xf32>
    })",
                       descent("sum")),
               "'loss.logits' is missing, expected an output of the model: 'a', 'b'");
}

TEST(Loss, RefusesASpecWithout) {
  EXPECT_ERROR(refusal(models::mlp, descent("")), "the spec has no 'loss'");
}

TEST(Loss, IsNotNeededForInferenceAlone) {
  TrainingSpec spec = descent("");
  spec.entries = {"infer"};
  Trained trained(models::mlp, spec);
  EXPECT_TRUE(trained.good) << trained.errors;
  EXPECT_FALSE(trained.entry("step"));
}

TEST(Loss, RefusesWeightsForOtherClasses) {
  TrainingSpec spec = descent("cross_entropy");
  spec.loss.classWeights = {1, 2};
  EXPECT_ERROR(refusal(models::mlp, spec),
               "'loss.class_weights' has 2 entries, expected 3");
}

TEST(Loss, RefusesTheNameOfAnInput) {
  TrainingSpec spec = descent("cross_entropy");
  spec.loss.labels = "x";
  EXPECT_ERROR(refusal(models::mlp, spec), "the model has an input 'x'");
}

TEST(Loss, TakesClassesAlongTheAxisOfTheSpec) {
  TrainingSpec spec = descent("cross_entropy");
  Trained last(models::embedding, spec);
  EXPECT_EQ(graph::tensorType(last.entry("eval").getArgument(1)).getShape(),
            ArrayRef<int64_t>({2, 3}));
  spec.loss.classAxis = 1;
  Trained second(models::embedding, spec);
  ASSERT_TRUE(second.good) << second.errors;
  EXPECT_EQ(graph::tensorType(second.entry("eval").getArgument(1)).getShape(),
            ArrayRef<int64_t>({2, 5}));
}

// Two operations without a gradient, named together.
TEST(Backward, NamesEveryOperationWithoutAGradient) {
  std::string errors = refusal(R"(
    graph.parameter @"param/w" : tensor<1x1x2x2xf32> "parameter"
    func.func @forward(%x: tensor<1x1x2x2xf32> {graph.name = "x"}) -> (tensor<1x1x2x2xf32> {graph.name = "y"}) {
      %w = graph.read @"param/w" : tensor<1x1x2x2xf32>
      %0 = graph.max_pool_grad %x, %w {kernel = array<i64: 1, 1>, strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_begin = array<i64: 0, 0>, pads_end = array<i64: 0, 0>, output = array<i64: 2, 2>} : (tensor<1x1x2x2xf32>, tensor<1x1x2x2xf32>) -> tensor<1x1x2x2xf32> loc("head/A")
      %1 = graph.max_pool_grad %x, %w {kernel = array<i64: 1, 1>, strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_begin = array<i64: 0, 0>, pads_end = array<i64: 0, 0>, output = array<i64: 2, 2>} : (tensor<1x1x2x2xf32>, tensor<1x1x2x2xf32>) -> tensor<1x1x2x2xf32> loc("head/B")
      %y = graph.add %0, %1 : (tensor<1x1x2x2xf32>, tensor<1x1x2x2xf32>) -> tensor<1x1x2x2xf32>
      return %y : tensor<1x1x2x2xf32>
    })",
                               descent("sum"));
  EXPECT_ERROR(errors, "2 operation(s)");
  EXPECT_ERROR(errors, "'max_pool_grad' (node 'head/A')");
  EXPECT_ERROR(errors, "'max_pool_grad' (node 'head/B')");
}

TEST(Backward, ReportsParametersWithoutInfluence) {
  Trained trained(R"(
    graph.parameter @"param/w" : tensor<2xf32> "parameter"
    graph.parameter @"param/unused" : tensor<2xf32> "parameter"
    func.func @forward(%x: tensor<2xf32> {graph.name = "x"}) -> (tensor<2xf32> {graph.name = "y"}) {
      %w = graph.read @"param/w" : tensor<2xf32>
      %y = graph.mul %x, %w : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
      return %y : tensor<2xf32>
    })",
                  descent("sum"));
  ASSERT_TRUE(trained.good) << trained.errors;
  EXPECT_FALSE(
      trained.module->lookupSymbol<graph::ParameterOp>("param/unused").getTrainable());
  std::string text;
  llvm::raw_string_ostream stream(text);
  (*trained.module)->getAttr("graph.report").print(stream);
  EXPECT_ERROR(text, "'unused' does not influence the loss and is not trained");
}

TEST(Backward, RefusesALossThatNothingInfluences) {
  EXPECT_ERROR(refusal(R"(
    graph.parameter @"param/w" : tensor<2xf32> "parameter"
    func.func @forward(%x: tensor<2xf32> {graph.name = "x"}) -> (tensor<2xf32> {graph.name = "y"}) {
      return %x : tensor<2xf32>
    })",
                       descent("sum")),
               "the loss depends on no trainable parameter");
}

// I16: dropout of a constant is drawn anew at every step, so it is never folded.
TEST(Entries, KeepDropoutOfAConstant) {
  Trained trained(R"(
    graph.parameter @"control/seed" : tensor<i64> "control"
    graph.parameter @"param/w" : tensor<4xf32> "parameter" {fill = 1.0 : f64}
    func.func @forward(%x: tensor<4xf32> {graph.name = "x"}) -> (tensor<4xf32> {graph.name = "y"}) {
      %seed = graph.read @"control/seed" : tensor<i64>
      %w = graph.read @"param/w" : tensor<4xf32>
      %ones = graph.constant dense<1.0> : tensor<4xf32>
      %d, %mask = graph.dropout %ones, %seed, %seed, %seed {ratio = 0.5 : f64, id = 1 : i64} : (tensor<4xf32>, tensor<i64>, tensor<i64>, tensor<i64>) -> (tensor<4xf32>, tensor<4xi1>)
      %y = graph.mul %d, %w : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      return %y : tensor<4xf32>
    })",
                  descent("sum"));
  ASSERT_TRUE(trained.good) << trained.errors;
  auto dropouts = trained.entry("step").getOps<graph::DropoutOp>();
  ASSERT_EQ(std::distance(dropouts.begin(), dropouts.end()), 1);
  EXPECT_EQ((*dropouts.begin()).getSamples(), 4u);
  EXPECT_TRUE(trained.entry("eval").getOps<graph::DropoutOp>().empty());
  // The input is unused, so no entry asks for it.
  EXPECT_EQ(trained.entry("infer").getNumArguments(), 0u);
}

} // namespace
