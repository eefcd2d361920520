// Estimators of importance over a compiled program 'probe', against the interpreter in
// double precision.

#include "runtime/probe/Probe.h"
#include "tests/passes/plan/StepCheck.h"
#include "tests/passes/plan/TensorSource.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

/// x [batch, 5] -> tanh layer of 6 -> logits [batch, 3].
std::string modelOf(int64_t batch) {
  std::string text = R"(
graph.parameter @"param/fc1" : tensor<6x5xf32> "parameter"
graph.parameter @"param/fc2" : tensor<3x6xf32> "parameter"
func.func @forward(%x: tensor<Bx5xf32> {graph.name = "x"}) -> (tensor<Bx3xf32> {graph.name = "logits"}) {
  %w1 = graph.read @"param/fc1" : tensor<6x5xf32>
  %w2 = graph.read @"param/fc2" : tensor<3x6xf32>
  %0 = graph.contract %x, %w1 {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<Bx5xf32>, tensor<6x5xf32>) -> tensor<Bx6xf32>
  %1 = graph.tanh %0 : (tensor<Bx6xf32>) -> tensor<Bx6xf32>
  %2 = graph.contract %1, %w2 {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 1>} : (tensor<Bx6xf32>, tensor<3x6xf32>) -> tensor<Bx3xf32>
  return %2 : tensor<Bx3xf32>
})";
  for (size_t at = text.find("<B"); at != std::string::npos; at = text.find("<B"))
    text.replace(at + 1, 1, std::to_string(batch));
  return text;
}

TrainingSpec probeSpec() {
  TrainingSpec spec = classification();
  spec.entries = {"probe", "eval"};
  return spec;
}

constexpr int64_t sampleCount = 12;

Values dataOf() {
  Values values{{"x", uniform({sampleCount, 5}, -1, 1, 60)}};
  for (double &x : values["x"].reals)
    x = static_cast<float>(x);
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < sampleCount; ++i)
    labels.push_back(i * 7 % 3);
  values["labels"] = integer({sampleCount}, labels);
  return values;
}

/// A compiled model and the same in the interpreter, with all samples as its batch.
struct Pair {
  explicit Pair(int64_t batch, const TrainingSpec &spec = probeSpec())
      : compiled(compileText(modelOf(batch), optionsFor(spec, folder.file("m.plan")))) {
    EXPECT_TRUE(compiled.status.ok()) << compiled.status.message;
    if (compiled.status.ok())
      running = std::make_unique<Running>(folder.file("m.plan"), 2);
    isGood = running && running->session && reference.good;
    if (isGood)
      randomize(reference, *running);
  }
  Session &session() { return *running->session; }

  PlanFolder folder;
  Compiled compiled;
  std::unique_ptr<Running> running;
  Trained reference{modelOf(sampleCount), probeSpec()};
  bool isGood = false;
};

/// Gradients of the sum of losses, in double.
Values gradientsOf(Trained &reference, const Values &data) {
  return reference.run("probe", data);
}

/// The sample by itself, in front of a batch of which one counts.
Values alone(const Values &data, int64_t sample) {
  Values one = data;
  for (auto &[name, tensor] : one) {
    auto row = static_cast<size_t>(tensor.size() / tensor.shape[0]);
    const HostTensor &all = data.at(name);
    for (size_t i = 0, from = static_cast<size_t>(sample) * row; i < row; ++i, ++from)
      if (tensor.isReal())
        tensor.reals[i] = all.reals[from];
      else
        tensor.integers[i] = all.integers[from];
  }
  return one;
}

double meanOf(const std::vector<double> &values) {
  double sum = 0;
  for (double x : values)
    sum += x;
  return sum / static_cast<double>(values.size());
}

/// Importance and increases are those of the sum over samples of squared gradients.
void expectFisher(Trained &reference, const Values &data, int64_t samples,
                  const Importance &importance) {
  reference.set("control/valid", 1);
  ASSERT_FALSE(importance.parameters.empty());
  for (const ParameterImportance &found : importance.parameters) {
    std::vector<double> fisher(found.weights().size());
    for (int64_t n = 0; n < samples; ++n) {
      Values gradients = gradientsOf(reference, alone(data, n));
      for (size_t i = 0; i < fisher.size(); ++i) {
        double g = gradients.at("grad/" + found.name()).reals[i];
        fisher[i] += g * g / static_cast<double>(samples);
      }
    }
    double mean = meanOf(fisher);
    EXPECT_NEAR(found.importance().whole.mean(), mean, 1e-3 * mean) << found.name();
    // The increase is of the real errors of the real weights.
    for (size_t f = 0; f < std::size(probedFormats); ++f) {
      auto rounded = roundedTo(probedFormats[f], found.shape(), found.weights());
      double rise = 0;
      for (size_t i = 0; i < fisher.size(); ++i)
        rise += 0.5 * fisher[i] * std::pow(double(rounded[i]) - found.weights()[i], 2);
      EXPECT_NEAR(found.increase(f).whole.mean(), rise, 1e-2 * rise + 1e-15)
          << found.name() << " " << traitsOf(probedFormats[f]).name;
    }
  }
}

class FisherOfBatch : public testing::TestWithParam<int64_t> {};

TEST_P(FisherOfBatch, IsTheFiniteSumOverSamples) {
  Pair pair(GetParam());
  ASSERT_TRUE(pair.isGood);
  Values data = dataOf();
  TensorSource source(pair.session().plan(), data, sampleCount);
  ProbeOptions options;
  options.samples = sampleCount;
  auto result = probeFisher(pair.session(), source, options);
  ASSERT_TRUE(result.ok()) << result.status().message;
  EXPECT_EQ(result->lossCount, sampleCount);
  expectFisher(pair.reference, data, sampleCount, result->importance);
}

INSTANTIATE_TEST_SUITE_P(Probe, FisherOfBatch, testing::Values(1, 2, 5, 12));

TEST(Probe, FisherOfACnnChangesNoState) {
  TrainingSpec spec = classification();
  spec.entries = {"step", "eval", "probe"};
  PlanFolder folder;
  Compiled compiled = compileText(models::cnn, optionsFor(spec, folder.file("m.plan")));
  ASSERT_TRUE(compiled.status.ok()) << compiled.status.message;
  Running running(folder.file("m.plan"), 2);
  ASSERT_TRUE(running.session);
  Trained trained(models::cnn, spec);
  randomize(trained, running);
  Values data = inputsOf(running.session->plan(), "step", 3);
  TensorSource source(running.session->plan(), data, 4);
  ProbeOptions options;
  options.samples = 4;
  auto fisher = probeFisher(*running.session, source, options);
  ASSERT_TRUE(fisher.ok()) << fisher.status().message;
  expectFisher(trained, data, 4, fisher->importance);
  running.step(data, 0);
  auto before = running.saved();
  ASSERT_TRUE(probeFisher(*running.session, source, options).ok());
  auto curvature = probeHutchinson(*running.session, source, options);
  ASSERT_TRUE(curvature.ok()) << curvature.status().message;
  EXPECT_EQ(running.saved(), before);
}

TEST(Probe, HutchinsonFindsTheDiagonal) {
  Pair pair(5);
  ASSERT_TRUE(pair.isGood);
  Values data = dataOf();
  TensorSource source(pair.session().plan(), data, sampleCount);
  ProbeOptions options;
  options.samples = sampleCount;
  options.draws = 512;
  auto result = probeHutchinson(pair.session(), source, options);
  ASSERT_TRUE(result.ok()) << result.status().message;
  pair.reference.set("control/valid", sampleCount);
  double errors = 0;
  for (const ParameterImportance &found : result->importance.parameters) {
    std::string symbol = "param/" + found.name();
    std::vector<double> diagonal;
    for (size_t i = 0; i < found.weights().size(); ++i) {
      double before = pair.reference.at(symbol).reals[i];
      auto slopeAt = [&](double weight) {
        pair.reference.at(symbol).reals[i] = weight;
        return gradientsOf(pair.reference, data).at("grad/" + found.name()).reals[i];
      };
      diagonal.push_back((slopeAt(before + 1e-5) - slopeAt(before - 1e-5)) /
                         (2e-5 * sampleCount));
      pair.reference.at(symbol).reals[i] = before;
    }
    double exact = meanOf(diagonal), error = found.importance().whole.standardError();
    EXPECT_NEAR(found.importance().whole.mean(), exact, 4 * error + 1e-4) << found.name();
    EXPECT_LT(error, 0.3 * exact) << found.name();
    errors += error;
  }
  EXPECT_GT(errors, 0);
}

// The diagonal of a quadratic in one weight is known after any draw.
TEST(Probe, HutchinsonOfAQuadraticIsExactAndRepeatable) {
  TrainingSpec spec = classification();
  spec.loss.kind = "mse";
  spec.loss.logits = "y";
  spec.entries = {"probe"};
  PlanFolder folder;
  Compiled compiled = compileText(models::line, optionsFor(spec, folder.file("m.plan")));
  ASSERT_TRUE(compiled.status.ok()) << compiled.status.message;
  Running running(folder.file("m.plan"), 1);
  ASSERT_TRUE(running.session);
  Values data{{"x", real({3, 1}, {1, 2, -3})}, {"labels", real({3, 1}, {0, 1, 2})}};
  TensorSource source(running.session->plan(), data, 3);
  ProbeOptions options;
  options.samples = 3;
  options.draws = 2;
  auto one = probeHutchinson(*running.session, source, options);
  auto two = probeHutchinson(*running.session, source, options);
  ASSERT_TRUE(one.ok() && two.ok());
  double found = one->importance.parameters[0].importance().whole.mean();
  EXPECT_NEAR(found, 2 * (1 + 4 + 9) / 3.0, 1e-3);
  EXPECT_EQ(found, two->importance.parameters[0].importance().whole.mean());
}

// Case C4: labels of the model's own distribution.
TEST(Probe, FisherOverAllClassesIsTheExactOne) {
  Pair pair(1);
  ASSERT_TRUE(pair.isGood);
  Values data = dataOf();
  TensorSource source(pair.session().plan(), data, sampleCount);
  ProbeOptions options;
  options.samples = sampleCount;
  options.labels = ProbeLabels::all;
  auto exact = probeFisher(pair.session(), source, options);
  ASSERT_TRUE(exact.ok()) << exact.status().message;
  // Of softmax the Fisher is the Hessian of what is linear in the last layer's weights.
  pair.reference.set("control/valid", sampleCount);
  const ParameterImportance &last = exact->importance.parameters[1];
  ASSERT_EQ(last.name(), "fc2");
  std::vector<double> diagonal;
  for (size_t i = 0; i < last.weights().size(); ++i) {
    auto slopeAt = [&](double offset) {
      pair.reference.at("param/fc2").reals[i] += offset;
      double slope = gradientsOf(pair.reference, data).at("grad/fc2").reals[i];
      pair.reference.at("param/fc2").reals[i] -= offset;
      return slope;
    };
    diagonal.push_back((slopeAt(1e-5) - slopeAt(-1e-5)) / (2e-5 * sampleCount));
  }
  EXPECT_NEAR(last.importance().whole.mean(), meanOf(diagonal), 1e-4);
  options.labels = ProbeLabels::sampled;
  auto sampled = probeFisher(pair.session(), source, options);
  ASSERT_TRUE(sampled.ok()) << sampled.status().message;
  const RunningMean &drawn = sampled->importance.parameters[1].importance().whole;
  EXPECT_NEAR(drawn.mean(), meanOf(diagonal), 4 * drawn.standardError());
  EXPECT_NE(drawn.mean(), last.importance().whole.mean());
}

TEST(Probe, MomentsAreTheOptimizersCorrectedForTheirStart) {
  TrainingSpec spec = classification("adam");
  PlanFolder folder;
  Compiled compiled = compileText(modelOf(4), optionsFor(spec, folder.file("m.plan")));
  ASSERT_TRUE(compiled.status.ok()) << compiled.status.message;
  Running running(folder.file("m.plan"), 1);
  ASSERT_TRUE(running.session);
  Trained trained(modelOf(4), spec);
  randomize(trained, running);
  EXPECT_FALSE(probeMoments(*running.session, ImportanceBlocks::tensor).ok());
  running.step(inputsOf(running.session->plan(), "step", 3), 0);
  auto result = probeMoments(*running.session, ImportanceBlocks::tensor);
  ASSERT_TRUE(result.ok()) << result.status().message;
  const ParameterImportance &found = result->importance.parameters[0];
  auto bytes = running.session->state("opt/" + found.name() + "/v");
  const float *v = reinterpret_cast<const float *>(bytes.data());
  double sum = 0; // after one update v = (1 - beta2) g^2
  for (size_t i = 0; i < found.weights().size(); ++i)
    sum += v[i] / (1 - spec.optimizer.beta2);
  double expected = 4 * sum / static_cast<double>(found.weights().size());
  EXPECT_NEAR(found.importance().whole.mean(), expected, 1e-5 * expected);
}

TEST(Probe, RefusesWhatIsNotFiniteAndPlansWithoutIt) {
  Pair pair(2);
  ASSERT_TRUE(pair.isGood);
  Values data = dataOf();
  data["x"].reals[7] = std::numeric_limits<double>::quiet_NaN(); // of sample 1
  TensorSource source(pair.session().plan(), data, sampleCount);
  ProbeOptions options;
  options.samples = sampleCount;
  auto result = probeFisher(pair.session(), source, options);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message.find("sample 1"), std::string::npos)
      << result.status().message;
  options.samples = sampleCount + 1;
  EXPECT_FALSE(probeFisher(pair.session(), source, options).ok());
  TrainingSpec spec = probeSpec();
  spec.entries = {"eval"};
  Pair without(2, spec);
  ASSERT_TRUE(without.isGood);
  options.samples = 2;
  auto missing = probeFisher(without.session(), source, options);
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.status().message.find("'probe'"), std::string::npos);
}

} // namespace
} // namespace sluice
