// The entry @probe against central differences of the loss, sample by sample, in double
// precision.

#include "tests/passes/train/Models.h"
#include "tests/passes/train/TrainFixture.h"

using namespace mlir;
using namespace sluice;

namespace {

TrainingSpec probed(const std::string &loss) {
  TrainingSpec spec = descent(loss);
  spec.entries = {"probe", "eval"};
  return spec;
}

/// The sample in all places of the batch, as padding repeats it.
HostTensor repeated(const HostTensor &tensor, int64_t sample) {
  HostTensor copy = tensor;
  size_t row = static_cast<size_t>(tensor.size() / tensor.shape[0]);
  for (size_t i = 0; i < static_cast<size_t>(tensor.size()); ++i) {
    size_t from = static_cast<size_t>(sample) * row + i % row;
    if (tensor.isReal())
      copy.reals[i] = tensor.reals[from];
    else
      copy.integers[i] = tensor.integers[from];
  }
  return copy;
}

Values sampleOf(const Values &batch, int64_t sample) {
  Values one;
  for (auto &[name, tensor] : batch)
    one[name] = repeated(tensor, sample);
  return one;
}

/// Sum over the samples of the squared central differences of each sample's loss.
std::map<std::string, std::vector<double>> finiteSum(Trained &trained,
                                                     const Values &batch) {
  std::map<std::string, std::vector<double>> sums;
  trained.set("control/valid", 1);
  for (auto parameter : trained.module->getOps<graph::ParameterOp>()) {
    if (!parameter.getTrainable())
      continue;
    const std::string symbol = parameter.getSymName().str();
    std::vector<double> &sum = sums[symbol.substr(6)];
    for (size_t i = 0; i < trained.at(symbol).reals.size(); ++i) {
      sum.push_back(0);
      for (int64_t n = 0; n < trained.batch(); ++n) {
        double &weight = trained.at(symbol).reals[i];
        const double before = weight;
        auto lossAt = [&](double value) {
          trained.at(symbol).reals[i] = value;
          return scalar(trained.run("eval", sampleOf(batch, n)), "loss_sum");
        };
        double slope = (lossAt(before + 1e-5) - lossAt(before - 1e-5)) / 2e-5;
        trained.at(symbol).reals[i] = before;
        sum.back() += slope * slope;
      }
    }
  }
  return sums;
}

void expectFisherIsFiniteSum(Trained &trained, const Values &batch) {
  ASSERT_TRUE(trained.good) << trained.errors;
  auto expected = finiteSum(trained, batch);
  ASSERT_FALSE(expected.empty());
  std::map<std::string, std::vector<double>> found;
  for (int64_t n = 0; n < trained.batch(); ++n)
    for (auto &[name, tensor] : trained.run("probe", sampleOf(batch, n)))
      if (StringRef(name).starts_with("grad/")) {
        std::vector<double> &sum = found[name.substr(5)];
        sum.resize(tensor.reals.size());
        for (size_t i = 0; i < sum.size(); ++i)
          sum[i] += tensor.reals[i] * tensor.reals[i];
      }
  ASSERT_EQ(found.size(), expected.size());
  for (auto &[name, sum] : expected)
    for (size_t i = 0; i < sum.size(); ++i)
      EXPECT_NEAR(found[name][i], sum[i], 1e-5 * (1e-2 + sum[i])) << name << " " << i;
}

TEST(Probe, SquaredGradientsOfSamplesAreTheFisherOfAnMlp) {
  Trained trained(models::mlp, probed("cross_entropy"));
  trained.randomize();
  expectFisherIsFiniteSum(trained, {{"x", uniform({4, 5}, -2, 2, 50)},
                                    {"labels", integer({4}, {0, 2, 1, 2})}});
}

// Case C2: dropout is off, statistics are the running ones, and nothing is written.
TEST(Probe, OfACnnEvaluatesAndLeavesItsStatistics) {
  Trained trained(models::cnn, probed("cross_entropy"));
  trained.randomize();
  trained.at("param/bn.running_var").reals = {0.5, 2, 1};
  const graph::StateMap before = trained.state;
  expectFisherIsFiniteSum(trained, {{"x", uniform({4, 2, 4, 4}, -1, 1, 50)},
                                    {"labels", integer({4}, {0, 2, 1, 2})}});
  for (const char *name : {"param/bn.running_mean", "param/bn.running_var"})
    EXPECT_EQ(trained.at(name).reals, before.lookup(name).reals) << name;
}

TEST(Probe, OfAnEmbeddingSumsOverPositions) {
  Trained trained(models::embedding, probed("cross_entropy"));
  trained.randomize();
  expectFisherIsFiniteSum(trained, {{"ids", integer({2, 3}, {4, 0, 4, 1, 3, 2})},
                                    {"labels", integer({2, 3}, {1, 2, -100, 0, 4, 3})}});
}

// Case C1: the square of the batch's gradient would be 0.
TEST(Probe, OfOppositeLabelsDoesNotCancel) {
  Trained trained(models::line, probed("bce_with_logits"));
  ASSERT_TRUE(trained.good) << trained.errors;
  trained.at("param/w").reals = {0};
  Values batch{{"x", real({3, 1}, {1, 1, 1})}, {"labels", real({3, 1}, {1, 0, 1})}};
  trained.set("control/valid", 1);
  double sum = 0;
  for (int64_t n = 0; n < 2; ++n) {
    double g = scalar(trained.run("probe", sampleOf(batch, n)), "grad/w");
    sum += g * g / 2;
  }
  EXPECT_NEAR(sum, 0.25, 1e-12);
}

} // namespace
