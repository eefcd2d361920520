// Initial values by rule: PyTorch's scales, and draws that depend on seed and name alone.

#include "frontend/SpecReader.h"
#include "tests/passes/train/TrainFixture.h"

using namespace sluice;

namespace {

/// w1 is [out, in] of a product, w2 [in, out], k the kernels of a convolution.
const char *model = R"(
  graph.parameter @"param/w1" : tensor<40x90xf32> "parameter"
  graph.parameter @"param/w2" : tensor<40x200xf32> "parameter"
  graph.parameter @"param/k" : tensor<16x8x3x3xf32> "parameter"
  graph.parameter @"param/b" : tensor<200xf32> "parameter" {fill = 0.5 : f64}
  func.func @forward(%x: tensor<4x90xf32> {graph.name = "x"}) -> (tensor<4x200xf32> {graph.name = "y"}) {
    %w1 = graph.read @"param/w1" : tensor<40x90xf32>
    %w2 = graph.read @"param/w2" : tensor<40x200xf32>
    %t = graph.transpose %w1 {permutation = array<i64: 1, 0>} : (tensor<40x90xf32>) -> tensor<90x40xf32>
    %h = graph.contract %x, %t {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 0>} : (tensor<4x90xf32>, tensor<90x40xf32>) -> tensor<4x40xf32>
    %y = graph.contract %h, %w2 {lhs_batch = array<i64>, rhs_batch = array<i64>, lhs_contract = array<i64: 1>, rhs_contract = array<i64: 0>} : (tensor<4x40xf32>, tensor<40x200xf32>) -> tensor<4x200xf32>
    %b = graph.read @"param/b" : tensor<200xf32>
    %s = graph.broadcast %b {shape = array<i64: 4, 200>} : (tensor<200xf32>) -> tensor<4x200xf32>
    %z = graph.add %y, %s : (tensor<4x200xf32>, tensor<4x200xf32>) -> tensor<4x200xf32>
    return %z : tensor<4x200xf32>
  })";

Trained initialised(std::vector<InitRule> rules, uint64_t seed = 1,
                    const std::string &text = model) {
  TrainingSpec spec = descent("mse");
  spec.init = std::move(rules);
  spec.seed = seed;
  return Trained(text, spec);
}
InitRule rule(const std::string &from, const std::string &match = "*") {
  InitRule made;
  made.match = match;
  made.from = from;
  return made;
}

/// Mean about 0 and standard deviation, within five standard errors; all within `bound`.
void expectMoments(const HostTensor &values, double deviation, double bound) {
  double mean = 0, square = 0, largest = 0, n = values.reals.size();
  for (double x : values.reals) {
    mean += x / n;
    square += x * x / n;
    largest = std::max(largest, std::abs(x));
  }
  EXPECT_NEAR(mean, 0, 5 * deviation / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(square), deviation, 5 * deviation / std::sqrt(2 * n));
  EXPECT_LE(largest, bound);
  EXPECT_GT(largest, 0.95 * std::min(bound, 3 * deviation));
}

TEST(Init, HasTheScalesOfKaimingAndXavier) {
  const double unbounded = 1e9;
  for (std::string form : {"", "_normal"}) {
    Trained kaiming = initialised({rule("kaiming" + form)});
    Trained xavier = initialised({rule("xavier" + form)});
    ASSERT_TRUE(kaiming.good && xavier.good) << kaiming.errors << xavier.errors;
    auto expect = [&](Trained &trained, const char *name, double deviation) {
      SCOPED_TRACE(name + form);
      expectMoments(trained.at(name), deviation,
                    form.empty() ? std::sqrt(3.0) * deviation : unbounded);
    };
    expect(kaiming, "param/w1", std::sqrt(2.0 / 90));
    expect(kaiming, "param/w2", std::sqrt(2.0 / 40)); // [in, out]: by its product
    expect(kaiming, "param/k", std::sqrt(2.0 / 72));
    expect(xavier, "param/w1", std::sqrt(2.0 / 130));
    expect(xavier, "param/w2", std::sqrt(2.0 / 240));
    expect(xavier, "param/k", std::sqrt(2.0 / (72 + 144)));
    EXPECT_EQ(kaiming.at("param/b").reals[7], 0.5); // no fans: the model's
  }
}

struct Recorded {
  const char *layer;
  std::vector<int64_t> shape; // PyTorch's
  std::string rule;
  double scale; // bound of uniform rules, deviation of normal ones
};
const Recorded recorded[] = {
#include "tests/passes/train/init-values.inc"
};

/// A weight that no product reads, as those of convolutions and embeddings; PyTorch's
/// layout speaks for itself then.
HostTensor weightOf(const std::vector<int64_t> &shape, const std::string &rule) {
  std::string type;
  for (int64_t size : shape)
    type += std::to_string(size) + "x";
  std::string text = model;
  text.insert(text.find("func.func"), "graph.parameter @\"param/layer\" : tensor<" +
                                          type + "f32> \"parameter\"\n");
  auto read = readSpec("", {"init=" + rule});
  EXPECT_TRUE(read.spec) << rule;
  Trained trained = initialised(read.spec->init, 1, text);
  EXPECT_TRUE(trained.good) << trained.errors;
  return trained.at("param/layer");
}

TEST(Init, HasTheScalesThatTorchDraws) {
  for (const Recorded &r : recorded) {
    SCOPED_TRACE(r.layer + (" " + r.rule));
    HostTensor values = weightOf(r.shape, r.rule);
    bool isNormal = r.rule.find("normal") != std::string::npos;
    bool isCut = r.rule.find("trunc") != std::string::npos;
    if (isNormal)
      expectMoments(values, r.scale, isCut ? 2 : 1e9);
    else
      expectMoments(values, r.scale / std::sqrt(3.0), r.scale);
  }
}

TEST(Init, OrthogonalRowsOrColumns) {
  for (std::vector<int64_t> shape : {std::vector<int64_t>{6, 10}, {10, 6}, {5, 2, 3}}) {
    HostTensor w = weightOf(shape, "{from: orthogonal, gain: 2}");
    size_t rows = shape[0], columns = w.reals.size() / rows;
    bool areRows = rows <= columns;
    size_t count = areRows ? rows : columns, length = areRows ? columns : rows;
    auto at = [&](size_t i, size_t k) {
      return w.reals[areRows ? i * columns + k : k * columns + i];
    };
    for (size_t i = 0; i < count; ++i)
      for (size_t j = 0; j <= i; ++j) {
        double product = 0;
        for (size_t k = 0; k < length; ++k)
          product += at(i, k) * at(j, k);
        EXPECT_NEAR(product, i == j ? 4 : 0, 1e-5);
      }
  }
}

TEST(Init, NormalHasItsStandardDeviation) {
  InitRule normal = rule("normal");
  normal.std = 0.02;
  Trained trained = initialised({normal});
  expectMoments(trained.at("param/w2"), 0.02, 1e9);
  EXPECT_NE(trained.at("param/b").reals[7], 0.5);
}

TEST(Init, LaterRulesWin) {
  Trained trained = initialised(
      {rule("kaiming"), rule("zeros", "w*"), rule("ones", "w2"), rule("model", "k")});
  EXPECT_EQ(trained.at("param/w1").reals, std::vector<double>(3600, 0));
  EXPECT_EQ(trained.at("param/w2").reals, std::vector<double>(8000, 1));
  EXPECT_EQ(trained.at("param/k").reals, std::vector<double>(1152, 0));
}

TEST(Init, DependsOnSeedAndNameAlone) {
  Trained first = initialised({rule("kaiming")});
  Trained only = initialised({rule("kaiming", "w2")});
  Trained other = initialised({rule("kaiming")}, 2);
  EXPECT_EQ(first.at("param/w2").reals, only.at("param/w2").reals);
  EXPECT_NE(first.at("param/w2").reals, other.at("param/w2").reals);
  EXPECT_NE(first.at("param/w1").reals[0] * std::sqrt(90),
            first.at("param/w2").reals[0] * std::sqrt(40));
}

TEST(Init, ReportsWhatItLeaves) {
  Trained trained = initialised({rule("kaiming")});
  std::string text;
  for (auto line : (*trained.module)->getAttrOfType<mlir::ArrayAttr>("graph.report"))
    text += mlir::cast<mlir::StringAttr>(line).str() + "\n";
  EXPECT_ERROR(text, "init: 3 parameters by kaiming, seed 1");
  EXPECT_ERROR(text, "init: 1 parameters below rank 2 keep the model's values");
}

TEST(Init, RefusesAPatternThatMatchesNothing) {
  Trained trained = initialised({rule("kaiming", "nothing*")});
  EXPECT_FALSE(trained.good);
  EXPECT_ERROR(trained.errors, "pattern 'nothing*' of 'init' matches no parameter");
}

} // namespace
