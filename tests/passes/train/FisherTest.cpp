// The entry @fisher against sums of squared central differences of each sample's loss, in
// double precision, and the update under a penalty.

#include "tests/passes/train/Models.h"
#include "tests/passes/train/TrainFixture.h"

using namespace mlir;
using namespace sluice;

namespace {

TrainingSpec held(const std::string &loss, const std::string &labels = "true") {
  TrainingSpec spec = descent(loss);
  spec.penalty.kind = "ewc";
  spec.penalty.lambda = 3;
  spec.penalty.storage = "fp32";
  spec.penalty.labels = labels;
  spec.penalty.gamma = 1;
  return spec;
}

/// The sample in all places of the batch, as padding repeats it.
Values sampleOf(const Values &batch, int64_t sample) {
  Values one = batch;
  for (auto &[name, tensor] : one) {
    auto row = static_cast<size_t>(tensor.size() / tensor.shape[0]);
    const HostTensor &all = batch.at(name);
    for (size_t i = 0; i < static_cast<size_t>(tensor.size()); ++i) {
      size_t from = static_cast<size_t>(sample) * row + i % row;
      if (tensor.isReal())
        tensor.reals[i] = all.reals[from];
      else
        tensor.integers[i] = all.integers[from];
    }
  }
  return one;
}

using Sums = std::map<std::string, std::vector<double>>;

/// Adds weight * slope^2 of the first sample's loss in every parameter.
void addSlopes(Trained &trained, const Values &sample, double weight, Sums &sums) {
  trained.set("control/valid", 1);
  for (auto parameter : trained.module->getOps<graph::ParameterOp>()) {
    if (!parameter.getTrainable())
      continue;
    const std::string symbol = parameter.getSymName().str();
    std::vector<double> &sum = sums[symbol.substr(6)];
    sum.resize(trained.at(symbol).reals.size());
    for (size_t i = 0; i < sum.size(); ++i) {
      double &value = trained.at(symbol).reals[i];
      const double before = value;
      auto lossAt = [&](double at) {
        value = at;
        return scalar(trained.run("eval", sample), "loss_sum");
      };
      double slope = (lossAt(before + 1e-5) - lossAt(before - 1e-5)) / 2e-5;
      value = before;
      sum[i] += weight * slope * slope;
    }
  }
  trained.set("control/valid", static_cast<double>(trained.batch()));
}

void expectSums(const Values &results, const Sums &expected, double scale = 1) {
  for (auto &[name, sum] : expected) {
    ASSERT_TRUE(results.contains("fisher/" + name)) << name;
    const std::vector<double> &found = results.at("fisher/" + name).reals;
    ASSERT_EQ(found.size(), sum.size());
    for (size_t i = 0; i < sum.size(); ++i)
      EXPECT_NEAR(scale * found[i], sum[i], 1e-5 * (1e-2 + sum[i])) << name << " " << i;
  }
}

void expectFiniteSum(Trained &trained, const Values &batch, bool together = true) {
  ASSERT_TRUE(trained.good) << trained.errors;
  EXPECT_NE((*trained.module)->hasAttr("graph.fisher_one_by_one"), together);
  Sums expected;
  for (int64_t n = 0; n < trained.batch(); ++n)
    addSlopes(trained, sampleOf(batch, n), 1, expected);
  ASSERT_FALSE(expected.empty());
  expectSums(trained.run("fisher", batch), expected);
}

Values mlpBatch() {
  return {{"x", uniform({4, 5}, -2, 2, 50)}, {"labels", integer({4}, {0, 2, 1, 2})}};
}

TEST(Fisher, OfAnMlpIsTheFiniteSum) {
  Trained trained(models::mlp, held("cross_entropy"));
  trained.randomize();
  expectFiniteSum(trained, mlpBatch());
}

TEST(Fisher, LeavesPaddingOut) {
  Trained trained(models::mlp, held("cross_entropy"));
  ASSERT_TRUE(trained.good) << trained.errors;
  trained.randomize();
  Sums expected;
  for (int64_t n = 0; n < 3; ++n)
    addSlopes(trained, sampleOf(mlpBatch(), n), 1, expected);
  trained.set("control/valid", 3);
  Values found = trained.run("fisher", mlpBatch());
  EXPECT_EQ(scalar(found, "loss_count"), 3);
  expectSums(found, expected);
}

// Case C2: dropout is off, statistics are the running ones, and nothing is written.
TEST(Fisher, OfACnnEvaluatesAndLeavesItsStatistics) {
  Trained trained(models::cnn, held("cross_entropy"));
  trained.randomize();
  trained.at("param/bn.running_var").reals = {0.5, 2, 1};
  const graph::StateMap before = trained.state;
  expectFiniteSum(trained, {{"x", uniform({4, 2, 4, 4}, -1, 1, 50)},
                            {"labels", integer({4}, {0, 2, 1, 2})}});
  for (const char *name : {"param/bn.running_mean", "param/bn.running_var"})
    EXPECT_EQ(trained.at(name).reals, before.lookup(name).reals) << name;
}

TEST(Fisher, OfAnEmbeddingSquaresSumsOverPositions) {
  Trained trained(models::embedding, held("cross_entropy"));
  trained.randomize();
  expectFiniteSum(trained, {{"ids", integer({2, 3}, {4, 0, 4, 1, 3, 2})},
                            {"labels", integer({2, 3}, {1, 2, -100, 0, 4, 3})}});
}

/// One weight in both layers: its gradients are summed before they are squared.
const std::string tied = R"(
graph.parameter @"param/w" : tensor<4x4xf32> "parameter"
func.func @forward(%x: tensor<3x4xf32> {graph.name = "x"}) -> (tensor<3x4xf32> {graph.name = "y"}) {
  %w = graph.read @"param/w" : tensor<4x4xf32>
  %0 = graph.contract %x, %w {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<3x4xf32>, tensor<4x4xf32>) -> tensor<3x4xf32>
  %1 = graph.tanh %0 : (tensor<3x4xf32>) -> tensor<3x4xf32>
  %2 = graph.contract %1, %w {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 0>} : (tensor<3x4xf32>, tensor<4x4xf32>) -> tensor<3x4xf32>
  return %2 : tensor<3x4xf32>
})";

TEST(Fisher, OfATiedWeightSquaresTheSumOfItsUses) {
  Trained trained(tied, held("mse"));
  trained.randomize();
  expectFiniteSum(trained, {{"x", uniform({3, 4}, -1, 1, 51)},
                            {"labels", uniform({3, 4}, -1, 1, 52)}});
}

/// The batch's mean is taken away from each sample.
const std::string centred = R"(
graph.parameter @"param/w" : tensor<2x4xf32> "parameter"
func.func @forward(%x: tensor<3x4xf32> {graph.name = "x"}) -> (tensor<3x2xf32> {graph.name = "y"}) {
  %w = graph.read @"param/w" : tensor<2x4xf32>
  %0 = graph.contract %x, %w {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<3x4xf32>, tensor<2x4xf32>) -> tensor<3x2xf32>
  %1 = graph.reduce %0 {kind = "max", axes = array<i64: 0>, keep} : (tensor<3x2xf32>) -> tensor<1x2xf32>
  %2 = graph.broadcast %1 {shape = array<i64: 3, 2>} : (tensor<1x2xf32>) -> tensor<3x2xf32>
  %3 = graph.sub %0, %2 : (tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<3x2xf32>
  return %3 : tensor<3x2xf32>
})";

TEST(Fisher, WhereSamplesMixTakesOneAtATimeAndSaysSo) {
  Trained trained(centred, held("mse"));
  ASSERT_TRUE(trained.good) << trained.errors;
  EXPECT_TRUE((*trained.module)->hasAttr("graph.fisher_one_by_one"));
  std::string lines;
  for (Attribute line : (*trained.module)->getAttrOfType<ArrayAttr>("graph.report"))
    lines += cast<StringAttr>(line).str() + "\n";
  EXPECT_NE(lines.find("one sample at a time, since an operation mixes samples"),
            std::string::npos)
      << lines;
}

TEST(Fisher, UnderReplayIsThatOfTheLossAloneAndOfAllSamplesTogether) {
  TrainingSpec spec = held("cross_entropy");
  spec.replay.isOn = true;
  spec.replay.logitsWeight = 0.3;
  spec.replay.labelsWeight = 0.5;
  Trained trained(models::mlp, spec);
  trained.randomize();
  expectFiniteSum(trained, mlpBatch());
}

// Case C1: the square of the batch's gradient would be 0.
TEST(Fisher, OfOppositeLabelsDoesNotCancel) {
  Trained trained(models::line, held("bce_with_logits"));
  ASSERT_TRUE(trained.good) << trained.errors;
  trained.at("param/w").reals = {0};
  trained.set("control/valid", 2);
  Values found = trained.run(
      "fisher", {{"x", real({3, 1}, {1, 1, 1})}, {"labels", real({3, 1}, {1, 0, 1})}});
  EXPECT_NEAR(found.at("fisher/w").reals[0] / scalar(found, "loss_count"), 0.25, 1e-12);
}

std::vector<double> softmaxRow(const HostTensor &logits, int64_t row) {
  auto classes = static_cast<size_t>(logits.shape.back());
  std::vector<double> p(classes);
  double sum = 0;
  for (size_t c = 0; c < classes; ++c)
    sum += p[c] = std::exp(logits.reals[static_cast<size_t>(row) * classes + c]);
  for (double &x : p)
    x /= sum;
  return p;
}

// Case C4: sum over classes of p(y | x) (d log p(y | x))^2.
TEST(Fisher, OfAllClassesIsTheExpectation) {
  Trained trained(models::mlp, held("cross_entropy", "all"));
  ASSERT_TRUE(trained.good) << trained.errors;
  trained.randomize();
  Values batch = mlpBatch();
  const HostTensor logits = trained.run("infer", {{"x", batch.at("x")}}).at("logits");
  Sums expected, found;
  for (int64_t label = 0; label < 3; ++label) {
    batch["labels"] = integer({4}, {label, label, label, label});
    for (int64_t n = 0; n < 4; ++n)
      addSlopes(trained, sampleOf(batch, n),
                softmaxRow(logits, n)[static_cast<size_t>(label)], expected);
  }
  for (int64_t label = 0; label < 3; ++label) {
    trained.set("control/class", static_cast<double>(label));
    for (auto &[name, tensor] : trained.run("fisher", mlpBatch())) {
      std::vector<double> &sum = found[name];
      sum.resize(tensor.reals.size());
      for (size_t i = 0; i < sum.size(); ++i)
        sum[i] += tensor.reals[i];
    }
  }
  Values total;
  for (auto &[name, sum] : found)
    total[name].reals = sum;
  expectSums(total, expected);
}

// Case C4: the labels drawn are not those given, and follow the model's distribution.
TEST(Fisher, OfSampledLabelsIsOneOfTheClassesForEachSample) {
  Trained sampled(models::mlp, held("cross_entropy", "sampled"));
  ASSERT_TRUE(sampled.good) << sampled.errors;
  sampled.randomize();
  Values batch = mlpBatch();
  batch["x"] = sampleOf(batch, 0).at("x"); // one input, many draws
  Sums byClass[3];
  for (int64_t label = 0; label < 3; ++label) {
    batch["labels"] = integer({4}, {label, label, label, label});
    addSlopes(sampled, batch, 1, byClass[label]);
  }
  const std::vector<double> p =
      softmaxRow(sampled.run("infer", {{"x", batch.at("x")}}).at("logits"), 0);
  // The squares of one sample say which class was drawn.
  sampled.set("control/valid", 1);
  int counts[3] = {0, 0, 0}, draws = 600;
  for (int n = 0; n < draws; ++n) {
    sampled.set("control/sample", n);
    const std::vector<double> found =
        sampled.run("fisher", batch).at("fisher/fc2.weight").reals;
    auto isOf = [&](int c) {
      const std::vector<double> &sum = byClass[c].at("fc2.weight");
      for (size_t i = 0; i < sum.size(); ++i)
        if (std::abs(found[i] - sum[i]) > 1e-5 * (1e-2 + sum[i]))
          return false;
      return true;
    };
    int drawn = isOf(0) ? 0 : isOf(1) ? 1 : isOf(2) ? 2 : -1;
    ASSERT_GE(drawn, 0) << n;
    ++counts[drawn];
  }
  for (int c = 0; c < 3; ++c) // six standard deviations
    EXPECT_NEAR(counts[c], draws * p[static_cast<size_t>(c)],
                6 * std::sqrt(draws * p[static_cast<size_t>(c)]) + 1);
}

/// y = w x on x = 1 with loss (y - 3)^2: gradient 2 (w - 3), here with one valid sample.
TEST(Penalty, CoupledIsPartOfTheGradient) {
  TrainingSpec spec = held("mse");
  spec.penalty.coupled = true;
  Trained trained(models::line, spec);
  ASSERT_TRUE(trained.good) << trained.errors;
  trained.at("ewc/w/anchor").reals = {1.5};
  trained.at("ewc/w/fisher").reals = {0.25};
  trained.run("step",
              {{"x", real({3, 1}, {1, 1, 1})}, {"labels", real({3, 1}, {3, 3, 3})}});
  // w = 2: mean gradient -2, penalty's 3 * 0.25 * 0.5; rate 1.
  EXPECT_NEAR(trained.at("param/w").reals[0], 2 + 2 - 0.375, 1e-6);
}

TEST(Penalty, NotCoupledIsAProximalStepBehindTheOptimizers) {
  Trained trained(models::line, held("mse"));
  ASSERT_TRUE(trained.good) << trained.errors;
  trained.at("ewc/w/anchor").reals = {1.5};
  trained.at("ewc/w/fisher").reals = {0.25};
  trained.run("step",
              {{"x", real({3, 1}, {1, 1, 1})}, {"labels", real({3, 1}, {3, 3, 3})}});
  EXPECT_NEAR(trained.at("param/w").reals[0], 4 + 0.75 * (1.5 - 4) / 1.75, 1e-6);
}

TEST(Penalty, OfSeveralTasksPullsToAllAnchors) {
  TrainingSpec spec = held("mse");
  spec.penalty.gamma = std::nullopt;
  spec.penalty.tasks = 2;
  Trained trained(models::line, spec);
  ASSERT_TRUE(trained.good) << trained.errors;
  trained.at("ewc/w/anchor").reals = {1.5};
  trained.at("ewc/w/fisher").reals = {0.25};
  trained.at("ewc/w/anchor.2").reals = {-1};
  trained.at("ewc/w/fisher.2").reals = {1};
  trained.run("step",
              {{"x", real({3, 1}, {1, 1, 1})}, {"labels", real({3, 1}, {3, 3, 3})}});
  EXPECT_NEAR(trained.at("param/w").reals[0],
              4 + (0.75 * (1.5 - 4) + 3 * (-1.0 - 4)) / (1 + 0.75 + 3), 1e-6);
}

TEST(Penalty, WithoutImportanceChangesNothing) {
  Trained plain(models::mlp, descent("cross_entropy"));
  ASSERT_TRUE(plain.good) << plain.errors;
  plain.randomize();
  plain.run("step", mlpBatch());
  for (bool coupled : {false, true}) {
    TrainingSpec spec = held("cross_entropy");
    spec.penalty.coupled = coupled;
    Trained trained(models::mlp, spec);
    ASSERT_TRUE(trained.good) << trained.errors;
    trained.randomize();
    trained.run("step", mlpBatch());
    for (const char *name : {"param/fc1.weight", "param/fc1.bias", "param/fc2.weight"})
      EXPECT_EQ(trained.at(name).reals, plain.at(name).reals) << name;
  }
}

TEST(Penalty, OfSiSumsTheWayAgainstTheGradient) {
  TrainingSpec spec = held("mse");
  spec.penalty.kind = "si";
  Trained trained(models::line, spec);
  ASSERT_TRUE(trained.good) << trained.errors;
  trained.at("si/w/path").reals = {0.5};
  trained.run("step",
              {{"x", real({3, 1}, {1, 1, 1})}, {"labels", real({3, 1}, {3, 3, 3})}});
  EXPECT_NEAR(trained.at("si/w/path").reals[0], 0.5 + 2 * 2, 1e-6); // -g * step
}

} // namespace
