// Bounds on gradients against their formulas, in double precision.

#include "tests/passes/train/Models.h"
#include "tests/passes/train/TrainFixture.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace sluice;

namespace {

Values mlpBatch() {
  return {{"x", uniform({4, 5}, -2, 2, 50)}, {"labels", integer({4}, {0, 2, 1, 2})}};
}

const std::vector<std::string> mlpNames = {"fc1.weight", "fc1.bias", "norm.weight",
                                           "fc2.weight"};

using Gradients = std::map<std::string, std::vector<double>>;

/// What a step of plain descent moves the mlp by.
Gradients stepOf(const TrainingSpec &spec, Values *results = nullptr) {
  Trained trained(models::mlp, spec);
  EXPECT_TRUE(trained.good) << trained.errors;
  trained.randomize();
  const graph::StateMap before = trained.state;
  Values values = trained.run("step", mlpBatch());
  if (results)
    *results = values;
  Gradients moved;
  for (const std::string &name : mlpNames)
    for (size_t i = 0; i < before.lookup("param/" + name).reals.size(); ++i)
      moved[name].push_back(before.lookup("param/" + name).reals[i] -
                            trained.at("param/" + name).reals[i]);
  return moved;
}

double squaresOf(const std::vector<double> &values) {
  double sum = 0;
  for (double x : values)
    sum += x * x;
  return sum;
}

TrainingSpec ofTwoGroups() {
  TrainingSpec spec = descent("cross_entropy");
  ParameterGroupSpec group;
  group.match = "fc2.*";
  group.options.lr = 1;
  group.options.momentum = 1e-30; // a group of its own that moves as the other
  group.keys = {"momentum"};
  spec.parameterGroups.push_back(group);
  return spec;
}

TEST(ClipByGroup, BoundsEachGroupByItsShare) {
  TrainingSpec spec = ofTwoGroups();
  Gradients free = stepOf(spec);
  for (bool isShared : {true, false}) {
    spec.clip = {"group_norm", 0.02};
    spec.clip.isShared = isShared;
    Values results;
    Gradients clipped = stepOf(spec, &results);
    double second = squaresOf(free["fc2.weight"]), first = -second;
    for (const std::string &name : mlpNames)
      first += squaresOf(free[name]);
    for (const std::string &name : mlpNames) {
      bool isSecond = name == "fc2.weight";
      double norm = std::sqrt(isSecond ? second : first);
      double share = isShared ? (isSecond ? 18.0 : 42.0) / 60 : 1;
      double factor = std::min(1.0, 0.02 * std::sqrt(share) / (norm + 1e-6));
      EXPECT_LT(factor, 1);
      for (size_t i = 0; i < free[name].size(); ++i)
        EXPECT_NEAR(clipped[name][i], free[name][i] * factor, 1e-13) << name;
      std::string group = isSecond ? "group1" : "default";
      EXPECT_NEAR(scalar(results, "group_norm/" + group), norm, 1e-12);
      EXPECT_NEAR(scalar(results, "group_factor/" + group), factor, 1e-12);
    }
  }
}

// Units of a product are what it does not sum over: rows of [out, in].
TEST(ClipByUnit, BoundsEachUnitByItsWeights) {
  TrainingSpec spec = descent("cross_entropy");
  Gradients free = stepOf(spec);
  spec.clip.kind = "agc";
  spec.clip.ratio = 0.02;
  spec.clip.eps = 0.4;
  spec.clip.exclude = {"norm.*"};
  Gradients clipped = stepOf(spec);
  Trained start(models::mlp, spec);
  start.randomize();
  int bounded = 0;
  for (const std::string &name : mlpNames) {
    const HostTensor &weights = start.at("param/" + name);
    bool isVector = weights.shape.size() == 1;
    size_t units = isVector ? 1 : static_cast<size_t>(weights.shape[0]);
    size_t each = weights.reals.size() / units;
    for (size_t unit = 0; unit < units; ++unit) {
      auto part = [&](const std::vector<double> &all) {
        return std::vector<double>(all.begin() + unit * each,
                                   all.begin() + (unit + 1) * each);
      };
      double g = std::sqrt(squaresOf(part(free[name])));
      double w = std::sqrt(squaresOf(part(weights.reals)));
      double limit = 0.02 * std::max(w, 0.4);
      double factor = name != "norm.weight" && g > limit ? limit / g : 1;
      bounded += factor < 1;
      for (size_t i = unit * each; i < (unit + 1) * each; ++i)
        EXPECT_NEAR(clipped[name][i], free[name][i] * factor, 1e-13) << name;
    }
  }
  EXPECT_GT(bounded, 4);
}

// A weight that lies [in, out] has its units in columns.
TEST(ClipByUnit, FollowsTheLayoutOfTheWeight) {
  const std::string model = R"(
graph.parameter @"param/w" : tensor<2x3xf32> "parameter" {fill = 1.0 : f64}
func.func @forward(%x: tensor<1x2xf32> {graph.name = "x"}) -> (tensor<1x3xf32> {graph.name = "y"}) {
  %w = graph.read @"param/w" : tensor<2x3xf32>
  %y = graph.contract %x, %w {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 0>} : (tensor<1x2xf32>, tensor<2x3xf32>) -> tensor<1x3xf32>
  return %y : tensor<1x3xf32>
})";
  TrainingSpec spec = descent("sum");
  spec.clip.kind = "agc";
  spec.clip.ratio = 0.5;
  Trained trained(model, spec);
  ASSERT_TRUE(trained.good) << trained.errors;
  trained.at("param/w").reals = {1, 2, 30, 1, 2, 40};
  trained.run("step", {{"x", real({1, 2}, {3, 4})}}); // gradient (3, 4) of each column
  double norms[] = {std::sqrt(2.0), std::sqrt(8.0), 50};
  for (size_t column = 0; column < 3; ++column) {
    double factor = std::min(1.0, 0.5 * norms[column] / 5);
    std::vector<double> before = {1, 2, 30, 1, 2, 40};
    EXPECT_NEAR(trained.at("param/w").reals[column], before[column] - 3 * factor, 1e-12);
    EXPECT_NEAR(trained.at("param/w").reals[3 + column], before[3 + column] - 4 * factor,
                1e-12);
  }
}

TEST(ClipByUnit, RefusesAPatternThatMatchesNothing) {
  TrainingSpec spec = descent("cross_entropy");
  spec.clip.kind = "agc";
  spec.clip.exclude = {"head.*"};
  Trained trained(models::mlp, spec);
  EXPECT_FALSE(trained.good);
  EXPECT_NE(
      trained.errors.find("pattern 'head.*' of 'clip.exclude' matches no parameter"),
      std::string::npos)
      << trained.errors;
}

/// The history of norms as docs/gradient-health.md writes it.
struct History {
  double alpha = 0.97;
  int64_t warmup = 25;
  double mean = 0, variance = 0;
  int64_t count = 0;

  bool isWarm() const { return count >= warmup; }
  void add(double value) {
    double d = value - mean;
    if (isWarm()) {
      mean += (1 - alpha) * d;
      variance = alpha * (variance + (1 - alpha) * d * d);
    } else {
      double n = static_cast<double>(count + 1);
      mean += d / n;
      variance += (d * (value - mean) - variance) / n;
    }
    ++count;
  }
};

/// One weight whose gradient is what is fed.
class OneWeight {
public:
  explicit OneWeight(const TrainingSpec &spec) : trained(models::line, spec) {
    EXPECT_TRUE(trained.good) << trained.errors;
  }
  /// What the weight moved by.
  double feed(double gradient) {
    double before = trained.at("param/w").reals[0];
    results = trained.run("step", {{"x", real({3, 1}, {gradient, 0, 0})},
                                   {"labels", real({3, 1}, {0, 0, 0})}});
    return before - trained.at("param/w").reals[0];
  }
  double state(const std::string &name) {
    return trained.at("scale/norm/" + name).reals[0];
  }
  int64_t count(const std::string &name) {
    return trained.at("scale/norm/" + name).integers[0];
  }
  Trained trained;
  Values results;
};

TrainingSpec ofLine() {
  TrainingSpec spec = descent("sum");
  return spec;
}

std::vector<double> gradients(size_t count) {
  std::vector<double> all;
  for (size_t i = 0; i < count; ++i)
    all.push_back(1 + 0.25 * std::sin(double(i) * 1.7) + 0.1 * std::cos(double(i) * 0.9));
  return all;
}

TEST(ClipByHistory, FollowsItsFormula) {
  TrainingSpec spec = ofLine();
  spec.clip.kind = "zclip";
  spec.clip.warmup = 5;
  spec.clip.alpha = 0.9;
  spec.clip.z = 2;
  spec.clip.max = 3;
  TrainingSpec plain = ofLine();
  OneWeight clipped(spec), free(plain);
  History history{0.9, 5};
  std::vector<double> fed = gradients(30);
  fed[3] = 40, fed[12] = 1000, fed[20] = -6;
  int spikes = 0;
  for (double gradient : fed) {
    double g = free.feed(gradient), norm = std::abs(g);
    double deviation = std::sqrt(history.variance);
    double z = (norm - history.mean) / (deviation + 1e-6), bound = norm;
    if (history.isWarm() && z > 2) {
      bound = history.mean + 2 * deviation * (2 / z);
      ++spikes;
    }
    bound = std::min(bound, 3.0);
    double factor = bound < norm ? bound / (norm + 1e-6) : 1;
    EXPECT_NEAR(clipped.feed(gradient), g * factor, 1e-9 * (1 + norm));
    EXPECT_NEAR(scalar(clipped.results, "clip_factor"), factor, 1e-12);
    history.add(bound);
    EXPECT_NEAR(clipped.state("mean"), history.mean, 1e-12);
    EXPECT_NEAR(clipped.state("variance"), history.variance, 1e-12);
    EXPECT_EQ(clipped.count("count"), history.count);
  }
  EXPECT_GT(spikes, 1);
}

// A NaN would stay in the averages for ever.
TEST(ClipByHistory, ForgetsNormsThatAreNotFinite) {
  TrainingSpec spec = ofLine();
  spec.clip.kind = "zclip";
  spec.clip.warmup = 2;
  OneWeight one(spec);
  for (double gradient : gradients(4))
    one.feed(gradient);
  double mean = one.state("mean"), variance = one.state("variance");
  one.feed(std::numeric_limits<double>::quiet_NaN());
  one.feed(std::numeric_limits<double>::infinity());
  EXPECT_EQ(one.state("mean"), mean);
  EXPECT_EQ(one.state("variance"), variance);
  EXPECT_EQ(one.count("count"), 4);
}

TEST(Outliers, ChangeNothingButTheirCount) {
  TrainingSpec spec = ofLine();
  spec.spikes.outliers = "skip";
  spec.spikes.warmup = 3;
  spec.spikes.factor = 4;
  spec.spikes.alpha = 0.8;
  OneWeight one(spec);
  History history{0.8, 3};
  std::vector<double> fed = gradients(14);
  fed[1] = 50; // too early to be one
  fed[6] = 1000, fed[9] = std::numeric_limits<double>::quiet_NaN();
  int64_t skipped = 0;
  for (double gradient : fed) {
    double norm = std::abs(gradient), limit = 4 * history.mean;
    bool isLarge = history.isWarm() && norm > limit;
    bool isOutlier = isLarge || !std::isfinite(norm);
    double moved = one.feed(gradient);
    if (isOutlier)
      EXPECT_EQ(moved, 0);
    else
      EXPECT_NEAR(moved, gradient, 1e-9);
    EXPECT_EQ(one.results.at("outlier").integers[0], isOutlier);
    if (std::isfinite(norm))
      history.add(isLarge ? limit : norm);
    EXPECT_EQ(one.count("outliers"), skipped += isOutlier);
    EXPECT_NEAR(one.state("mean"), history.mean, 1e-9 * history.mean);
  }
  EXPECT_EQ(skipped, 2);
}

// A norm that stays larger is the usual one before long.
TEST(Outliers, GetUsedToANewSize) {
  TrainingSpec spec = ofLine();
  spec.spikes.outliers = "skip";
  spec.spikes.warmup = 3;
  OneWeight one(spec);
  for (double gradient : gradients(5))
    one.feed(gradient);
  int skipped = 0;
  while (skipped < 50 && one.feed(100) == 0)
    ++skipped;
  EXPECT_GT(skipped, 3);
  EXPECT_LT(skipped, 20);
}

TEST(Norms, AreResultsWithoutAClip) {
  TrainingSpec spec = ofTwoGroups();
  Gradients free = stepOf(spec);
  spec.gradientNorms = true;
  Values results;
  EXPECT_EQ(stepOf(spec, &results), free);
  double all = 0;
  for (const std::string &name : mlpNames) {
    EXPECT_NEAR(scalar(results, "grad_squares/" + name), squaresOf(free[name]), 1e-12);
    all += squaresOf(free[name]);
  }
  EXPECT_NEAR(scalar(results, "grad_norm"), std::sqrt(all), 1e-12);
}

// As a parameter without a gradient.
TEST(Norms, CountNothingOfFrozenGroups) {
  TrainingSpec spec = ofTwoGroups();
  spec.gradientNorms = true;
  Gradients free = stepOf(spec);
  Trained trained(models::mlp, spec);
  trained.randomize();
  trained.set("control/default/active", 0);
  Values results = trained.run("step", mlpBatch());
  EXPECT_EQ(scalar(results, "group_norm/default"), 0);
  EXPECT_NEAR(scalar(results, "grad_norm"), std::sqrt(squaresOf(free["fc2.weight"])),
              1e-12);
}

} // namespace
