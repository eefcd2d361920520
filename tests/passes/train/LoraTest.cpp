// Low-rank adapters as a rewrite of the graph, in the interpreter.

#include "tests/passes/train/Models.h"
#include "tests/passes/train/TrainFixture.h"

using namespace mlir;
using namespace sluice;

namespace {

TrainingSpec adapted(const std::string &match, int64_t rank = 2, double dropout = 0) {
  TrainingSpec spec = descent("cross_entropy");
  spec.lora = {{match, rank, 3, dropout}};
  spec.trainable = {"*.lora_A", "*.lora_B"};
  return spec;
}

Values mlpBatch() {
  return {{"x", uniform({4, 5}, -2, 2, 50)}, {"labels", integer({4}, {0, 2, 1, 2})}};
}
Values cnnBatch() {
  return {{"x", uniform({4, 2, 4, 4}, -1, 1, 50)},
          {"labels", integer({4}, {0, 2, 1, 2})}};
}
Values tokenBatch() {
  return {{"ids", integer({2, 3}, {4, 0, 4, 1, -1, 2})},
          {"labels", integer({2, 3}, {1, 2, -100, 0, 4, 3})}};
}

/// The embedding is the head too.
std::string tiedModel() {
  std::string text = models::embedding;
  size_t read = text.find("  %head = graph.read");
  text.erase(read, text.find('\n', read) - read + 1);
  size_t declared = text.find("graph.parameter @\"param/head\"");
  text.erase(declared, text.find('\n', declared) - declared + 1);
  return text.replace(text.find("%1, %head"), 9, "%1, %wte ");
}

/// base + 3 / rank * B A, as the plan's `graph.adapters` describe it.
void merge(Trained &trained, Trained &plain) {
  auto adapters = (*trained.module)->getAttrOfType<ArrayAttr>("graph.adapters");
  ASSERT_TRUE(adapters);
  for (auto adapter : adapters.getAsRange<DictionaryAttr>()) {
    auto at = [&](const char *key) -> HostTensor & {
      return trained.at(adapter.getAs<StringAttr>(key).str());
    };
    HostTensor &a = at("a"), &b = at("b"), base = at("base");
    int64_t rank = a.shape[0], in = a.size() / rank, out = b.shape[0];
    double scale = adapter.getAs<FloatAttr>("scale").getValueAsDouble();
    EXPECT_EQ(scale, 3.0 / rank);
    for (int64_t o = 0; o < out; ++o)
      for (int64_t n = 0; n < in; ++n)
        for (int64_t r = 0; r < rank; ++r) {
          bool inputFirst = adapter.getAs<BoolAttr>("input_first").getValue();
          base.reals[inputFirst ? n * out + o : o * in + n] +=
              scale * b.reals[o * rank + r] * a.reals[r * in + n];
        }
    plain.at(adapter.getAs<StringAttr>("base").str()) = base;
  }
}

/// Starts as the model without, follows its gradient, and is the merged weights.
void check(const std::string &model, TrainingSpec spec, const Values &batch,
           size_t expected) {
  Trained trained(model, spec), plain(model, descent("cross_entropy"));
  ASSERT_TRUE(trained.good && plain.good) << trained.errors << plain.errors;
  auto adapters = (*trained.module)->getAttrOfType<ArrayAttr>("graph.adapters");
  EXPECT_EQ(adapters.size(), expected);
  for (auto &entry : plain.state)
    if (entry.getKey().starts_with("param/"))
      entry.second.reals =
          uniform(entry.second.shape, entry.getKey().contains("_var") ? 0.5 : -1, 1, 7)
              .reals;
  for (auto &entry : plain.state)
    if (entry.getKey().starts_with("param/"))
      trained.state[entry.getKey()] = entry.second;
  EXPECT_EQ(scalar(trained.run("eval", batch), "loss_sum"),
            scalar(plain.run("eval", batch), "loss_sum"));
  unsigned seed = 20;
  for (auto &entry : trained.state)
    if (entry.getKey().contains(".lora_"))
      entry.second.reals = uniform(entry.second.shape, -1, 1, seed++).reals;
  expectStepIsGradient(trained, batch);
  const graph::StateMap before = trained.state;
  merge(trained, plain);
  EXPECT_NEAR(scalar(trained.run("eval", batch), "loss_sum"),
              scalar(plain.run("eval", batch), "loss_sum"), 1e-9);
  trained.run("step", batch);
  for (const auto &entry : before)
    if (entry.getKey().starts_with("param/") && !entry.getKey().contains(".lora_") &&
        !entry.getKey().contains("running"))
      EXPECT_EQ(trained.at(entry.getKey().str()).reals, entry.second.reals)
          << entry.getKey().str();
}

TEST(Lora, OfMatrices) { check(models::mlp, adapted("fc*"), mlpBatch(), 2); }

TEST(Lora, OfConvolutions) { check(models::cnn, adapted("*"), cnnBatch(), 2); }

TEST(Lora, OfAnEmbedding) {
  check(models::embedding, adapted("*"), tokenBatch(), 2);
  check(models::embedding, adapted("wte", 1), tokenBatch(), 1);
}

TEST(Lora, OfAHeadThatIsTheEmbedding) {
  check(tiedModel(), adapted("wte"), tokenBatch(), 1);
}

TEST(Lora, OfATransposedMatrixOnTheLeft) {
  std::string model = R"(
graph.parameter @"param/w" : tensor<5x3xf32> "parameter"
func.func @forward(%x: tensor<4x5xf32> {graph.name = "x"}) -> (tensor<4x3xf32> {graph.name = "logits"}) {
  %w = graph.read @"param/w" : tensor<5x3xf32>
  %t = graph.transpose %w {permutation = array<i64: 1, 0>} : (tensor<5x3xf32>) -> tensor<3x5xf32>
  %y = graph.contract %t, %x {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<3x5xf32>, tensor<4x5xf32>) -> tensor<3x4xf32>
  %z = graph.transpose %y {permutation = array<i64: 1, 0>} : (tensor<3x4xf32>) -> tensor<4x3xf32>
  return %z : tensor<4x3xf32>
})";
  check(model, adapted("w"), mlpBatch(), 1);
}

TEST(Lora, DropsItsInputInTrainingOnly) {
  Trained trained(models::mlp, adapted("fc1.weight", 2, 0.5));
  ASSERT_TRUE(trained.good) << trained.errors;
  trained.randomize();
  expectStepIsGradient(trained, mlpBatch());
  double training = scalar(trained.run("step", mlpBatch()), "loss_sum");
  EXPECT_NE(training, scalar(trained.run("eval", mlpBatch()), "loss_sum"));
}

TEST(Lora, StartsAsPeftDoes) {
  Trained trained(models::mlp, adapted("fc1.weight"));
  ASSERT_TRUE(trained.good) << trained.errors;
  const HostTensor &a = trained.at("param/fc1.weight.lora_A");
  const HostTensor &b = trained.at("param/fc1.weight.lora_B");
  EXPECT_EQ(a.shape, Shape({2, 5}));
  EXPECT_EQ(b.shape, Shape({6, 2}));
  EXPECT_EQ(b.reals, std::vector<double>(12, 0));
  double largest = 0;
  for (double x : a.reals)
    largest = std::max(largest, std::abs(x));
  EXPECT_LE(largest, 1 / std::sqrt(5.0));
  EXPECT_GT(largest, 0.5 / std::sqrt(5.0));
}

TEST(Lora, RefusesWhatItCannotAdapt) {
  auto errorsOf = [](const std::string &model, const TrainingSpec &spec) {
    Trained trained(model, spec);
    EXPECT_FALSE(trained.good);
    return trained.errors;
  };
  EXPECT_ERROR(errorsOf(models::mlp, adapted("attn")), "matches no parameter");
  EXPECT_ERROR(errorsOf(models::mlp, adapted("fc2.weight", 4)),
               "whose smaller side is 3, but 'rank' is 4");
  EXPECT_ERROR(errorsOf(models::mlp, adapted("*.bias")), "none of which is a matrix");
  EXPECT_ERROR(errorsOf(models::mlp, adapted("[")), "is no glob");
  std::string added = R"(
graph.parameter @"param/w" : tensor<4x3xf32> "parameter"
func.func @forward(%x: tensor<4x3xf32> {graph.name = "x"}) -> (tensor<4x3xf32> {graph.name = "logits"}) {
  %w = graph.read @"param/w" : tensor<4x3xf32>
  %y = graph.add %x, %w : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>
  return %y : tensor<4x3xf32>
})";
  EXPECT_ERROR(errorsOf(added, adapted("w")), "('add') uses; adapters are for");
}

} // namespace
