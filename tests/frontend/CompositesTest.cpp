// Composites are found in the forms exporters write, and give the same numbers.
#include "tests/frontend/ModelBuilder.h"
#include "tests/frontend/ModelRunner.h"

#include <cmath>
#include <gtest/gtest.h>

namespace sluice::test {

namespace {

/// Imports with and without recognition: one composite of this kind, equal outputs.
void expectComposite(const ModelBuilder &builder, const std::string &name,
                     std::vector<int64_t> shape) {
  std::string path = builder.save();
  int64_t count = 1;
  for (int64_t dim : shape)
    count *= dim;
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(float(std::sin(double(i) * 1.7) * 2 + 0.3));
  ImportOptions plain;
  plain.recognizeComposites = false;
  auto input = std::vector<NamedTensor>{{"x", realTensor(shape, values)}};
  auto found = runModel(path, input, {}), decomposed = runModel(path, input, plain);
  ASSERT_EQ(found.error, "");
  ASSERT_EQ(decomposed.error, "");
  EXPECT_EQ(compare(found.outputs[0].tensor, decomposed.outputs[0].tensor, 1e-5, 1e-6),
            "");
  std::string expected = "composites: 1 " + name;
  bool noted = false;
  for (const std::string &note : found.report.notes)
    noted |= note.rfind(expected, 0) == 0;
  EXPECT_TRUE(noted) << expected;
}

/// PyTorch's LayerNorm before opset 17.
ModelBuilder layerNorm(bool reciprocal) {
  ModelBuilder b(13);
  b.input("x", {2, 5, 8}).output("y");
  b.weight("gamma", {8});
  b.weight("beta", {8});
  b.weight("two", {}, {2});
  b.weight("eps", {}, {1e-5f});
  for (auto [in, out] : {std::pair("x", "mean"), std::pair("square", "variance")}) {
    if (std::string(out) == "variance") {
      b.node("Sub", {"x", "mean"}, {"d"});
      b.node("Pow", {"d", "two"}, {"square"});
    }
    set(b.node("ReduceMean", {in}, {out}), "axes", std::vector<int64_t>{-1});
  }
  b.node("Add", {"variance", "eps"}, {"v"});
  b.node("Sqrt", {"v"}, {"s"});
  if (reciprocal) {
    b.node("Reciprocal", {"s"}, {"r"});
    b.node("Mul", {"d", "r"}, {"n"});
  } else {
    b.node("Div", {"d", "s"}, {"n"});
  }
  b.node("Mul", {"n", "gamma"}, {"g"});
  b.node("Add", {"g", "beta"}, {"y"});
  return b;
}

TEST(Composites, LayerNormByDivision) {
  expectComposite(layerNorm(false), "layer_norm", {2, 5, 8});
}
TEST(Composites, LayerNormByReciprocal) {
  expectComposite(layerNorm(true), "layer_norm", {2, 5, 8});
}

TEST(Composites, RmsNorm) {
  ModelBuilder b(13);
  b.input("x", {2, 5, 8}).output("y");
  b.weight("gamma", {8});
  b.weight("two", {}, {2});
  b.weight("eps", {}, {1e-6f});
  b.node("Pow", {"x", "two"}, {"square"});
  set(b.node("ReduceMean", {"square"}, {"mean"}), "axes", std::vector<int64_t>{-1});
  b.node("Add", {"mean", "eps"}, {"v"});
  b.node("Sqrt", {"v"}, {"s"});
  b.node("Reciprocal", {"s"}, {"r"});
  b.node("Mul", {"x", "r"}, {"n"});
  b.node("Mul", {"gamma", "n"}, {"y"});
  expectComposite(b, "rms_norm", {2, 5, 8});
}

TEST(Composites, GeluByErf) {
  ModelBuilder b(13);
  b.input("x", {4, 8}).output("y");
  b.weight("root", {}, {1.41421354f});
  b.weight("one", {}, {1});
  b.weight("half", {}, {0.5});
  b.node("Div", {"x", "root"}, {"a"});
  b.node("Erf", {"a"}, {"e"});
  b.node("Add", {"e", "one"}, {"p"});
  b.node("Mul", {"x", "p"}, {"m"});
  b.node("Mul", {"m", "half"}, {"y"});
  expectComposite(b, "gelu", {4, 8});
}

TEST(Composites, GeluByTanh) {
  ModelBuilder b(13);
  b.input("x", {4, 8}).output("y");
  b.weight("three", {}, {3});
  b.weight("c", {}, {0.044715f});
  b.weight("k", {}, {0.7978845834732056f});
  b.weight("one", {}, {1});
  b.weight("half", {}, {0.5});
  b.node("Pow", {"x", "three"}, {"cube"});
  b.node("Mul", {"cube", "c"}, {"scaled"});
  b.node("Add", {"x", "scaled"}, {"sum"});
  b.node("Mul", {"sum", "k"}, {"inner"});
  b.node("Tanh", {"inner"}, {"t"});
  b.node("Add", {"t", "one"}, {"p"});
  b.node("Mul", {"x", "half"}, {"h"});
  b.node("Mul", {"h", "p"}, {"y"});
  expectComposite(b, "gelu", {4, 8});
}

TEST(Composites, Silu) {
  ModelBuilder b;
  b.input("x", {4, 8}).output("y");
  b.node("Sigmoid", {"x"}, {"s"});
  b.node("Mul", {"x", "s"}, {"y"});
  expectComposite(b, "silu", {4, 8});
}

TEST(Composites, Softmax) {
  ModelBuilder b(13);
  b.input("x", {4, 8}).output("y");
  set(b.node("ReduceMax", {"x"}, {"m"}), "axes", std::vector<int64_t>{1});
  b.node("Sub", {"x", "m"}, {"d"});
  b.node("Exp", {"d"}, {"e"});
  b.integers("axes", {1});
  b.node("ReduceSum", {"e", "axes"}, {"s"});
  b.node("Div", {"e", "s"}, {"y"});
  expectComposite(b, "softmax", {4, 8});
}

TEST(Composites, ADifferentVarianceIsNotTaken) {
  ModelBuilder b = layerNorm(false);
  // Divided by N - 1, as in an unbiased standard deviation.
  b.weight("unbiased", {}, {8.0f / 7});
  auto *nodes = b.model.mutable_graph()->mutable_node();
  for (auto &node : *nodes)
    if (node.op_type() == "Add" && node.input(0) == "variance")
      node.set_input(0, "corrected");
  auto &mul = b.node("Mul", {"variance", "unbiased"}, {"corrected"});
  for (int i = nodes->size() - 1; i > 0 && nodes->Get(i - 1).output(0) != "variance"; --i)
    nodes->SwapElements(i, i - 1);
  (void)mul;
  auto run = runModel(b.save(),
                      {{"x", realTensor({2, 5, 8}, std::vector<double>(80, 1.0))}}, {});
  ASSERT_EQ(run.error, "");
  for (const std::string &note : run.report.notes)
    EXPECT_EQ(note.find("composites"), std::string::npos) << note;
}

} // namespace
} // namespace sluice::test
