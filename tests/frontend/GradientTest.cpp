// Gradients of imported models: what the importer writes must lead back to the weights.
#include "frontend/onnx/Emitter.h"
#include "ir/graph/GraphBuilder.h"
#include "passes/ReverseMode.h"
#include "tests/frontend/ImportedModel.h"

#include <cmath>

namespace sluice::test {

namespace {

using namespace mlir;
using graph::HostTensor;

struct Differentiated {
  double loss = 0;
  std::map<std::string, std::vector<double>> gradients; // by weight
};

/// The loss is the sum of the first output times 1, 2, 3, ...; in double precision.
/// `weights` replaces values of the model's weights.
Differentiated
differentiate(const std::string &path, const std::vector<HostTensor> &inputs,
              const ImportOptions &options = {},
              const std::map<std::string, std::vector<double>> &weights = {}) {
  Differentiated result;
  auto m = test::import(path, options);
  EXPECT_TRUE(m.ok) << m.problems;
  if (!m.ok)
    return result;
  auto function = m.module->lookupSymbol<func::FuncOp>("forward");
  Operation *end = function.getBody().front().getTerminator();
  OpBuilder builder(end);
  graph::GraphBuilder b(function.getLoc(), builder);
  Value y = end->getOperand(0);
  HostTensor factors = HostTensor::zeros(cast<RankedTensorType>(y.getType()));
  for (size_t i = 0; i < factors.reals.size(); ++i)
    factors.reals[i] = double(i + 1);
  Value loss = b.sumAll(
      b.mul(y, b.create<graph::ConstantOp>(frontend::toAttribute(factors)).getResult()));
  ReverseMode reverse(function);
  EXPECT_TRUE(succeeded(reverse.run(loss)));
  SmallVector<Value> results = {loss};
  std::vector<std::string> names;
  for (auto &entry : reverse.gradients()) {
    names.push_back(entry.getKey().substr(6).str()); // after "param/"
    results.push_back(entry.getValue());
  }
  end->setOperands(results);
  function->removeAttr("res_attrs");
  function.setFunctionType(builder.getFunctionType(
      function.getArgumentTypes(), llvm::to_vector(ValueRange(results).getTypes())));
  auto state = graph::initialState(*m.module);
  EXPECT_TRUE(succeeded(state));
  for (auto &[name, values] : weights)
    (*state)["param/" + name].reals = values;
  auto values = graph::interpret(function, inputs, *state, graph::Precision::Double);
  EXPECT_TRUE(succeeded(values));
  result.loss = (*values)[0].reals[0];
  for (size_t i = 0; i < names.size(); ++i)
    result.gradients[names[i]] = (*values)[i + 1].reals;
  return result;
}

/// Compares the gradient of one weight with central differences.
void expectDifferences(const std::string &path, const std::vector<HostTensor> &inputs,
                       const std::string &weight, std::vector<double> at,
                       const ImportOptions &options = {}) {
  auto base = differentiate(path, inputs, options, {{weight, at}});
  ASSERT_EQ(base.gradients.count(weight), 1u);
  constexpr double step = 1e-6;
  for (size_t i = 0; i < at.size(); ++i) {
    auto up = at, down = at;
    up[i] += step;
    down[i] -= step;
    double expected = (differentiate(path, inputs, options, {{weight, up}}).loss -
                       differentiate(path, inputs, options, {{weight, down}}).loss) /
                      (2 * step);
    EXPECT_NEAR(base.gradients[weight][i], expected,
                1e-6 * std::max(1.0, std::abs(expected)))
        << "element " << i;
  }
}

onnx::TensorProto &scalar(ModelBuilder &b, const std::string &name, int type,
                          int64_t value) {
  auto &tensor = *b.model.mutable_graph()->add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(type);
  tensor.add_int32_data(int32_t(value));
  return tensor;
}

TEST(StraightThrough, RoundingPassesAndSaturationStops) {
  struct Case {
    int type;
    int64_t zero;
    std::vector<double> quantized, slopes;
  };
  // Weights over a scale of 0.5: -200, -1.2, 0.6, 100.
  for (const Case &c :
       {Case{onnx::TensorProto::INT8, 3, {-65.5, -0.5, 0.5, 50}, {0, 1, 1, 1}},
        Case{onnx::TensorProto::UINT8, 128, {-64, -0.5, 0.5, 50}, {0, 1, 1, 1}},
        Case{onnx::TensorProto::INT16, 0, {-100, -0.5, 0.5, 50}, {1, 1, 1, 1}},
        Case{onnx::TensorProto::UINT16, 1, {-0.5, -0.5, 0.5, 50}, {0, 1, 1, 1}},
        Case{22, 1, {-4.5, -0.5, 0.5, 3}, {0, 1, 1, 0}},      // int4
        Case{21, 9, {-4.5, -0.5, 0.5, 3}, {0, 1, 1, 0}},      // uint4
        Case{17, 0, {-96, -0.625, 0.3125, 48}, {1, 1, 1, 1}}, // float8e4m3fn
        Case{18, 0, {-96, -0.625, 0.3125, 48}, {1, 1, 1, 1}},
        Case{19, 0, {-96, -0.625, 0.3125, 48}, {1, 1, 1, 1}}, // float8e5m2
        Case{20, 0, {-96, -0.625, 0.3125, 48}, {1, 1, 1, 1}},
        Case{23, 0, {-3, -0.5, 0.25, 3}, {0, 1, 1, 0}}}) { // float4e2m1
    ModelBuilder b(21, 10);
    b.input("x", {4}).output("y");
    b.weight("w", {4}, {-100, -0.6F, 0.3F, 50});
    b.weight("scale", {}, {0.5});
    scalar(b, "zero", c.type, c.zero);
    b.node("QuantizeLinear", {"w", "scale", "zero"}, {"q"});
    b.node("DequantizeLinear", {"q", "scale", "zero"}, {"d"});
    b.node("Mul", {"d", "x"}, {"y"});
    auto out = differentiate(b.save(), {realTensor({4}, {1, 1, 1, 1})});
    double loss = 0;
    std::vector<double> expected;
    for (int i = 0; i < 4; ++i) {
      loss += c.quantized[i] * (i + 1);
      expected.push_back(c.slopes[i] * (i + 1));
    }
    EXPECT_NEAR(out.loss, loss, 1e-9) << c.type;
    EXPECT_EQ(out.gradients["w"], expected) << c.type;
    EXPECT_EQ(out.gradients.size(), 1u) << "scales are constants";
  }
}

TEST(StraightThrough, PerAxisAndByBlocks) {
  for (bool blocks : {false, true}) {
    ModelBuilder b(21, 10);
    b.input("x", {2, 4}).output("y");
    b.weight("w", {2, 4});
    if (blocks)
      b.weight("scale", {2, 2}, {0.5, 0.25, 1, 2});
    else
      b.weight("scale", {2}, {0.5, 0.25});
    for (const char *op : {"QuantizeLinear", "DequantizeLinear"}) {
      bool first = op[0] == 'Q';
      auto &node = b.node(op, {first ? "w" : "q", "scale"}, {first ? "q" : "d"});
      set(node, "axis", int64_t(blocks ? 1 : 0));
      if (blocks)
        set(node, "block_size", int64_t(2));
    }
    b.node("Mul", {"d", "x"}, {"y"});
    auto out = differentiate(b.save(), {realTensor({2, 4}, std::vector<double>(8, 1))});
    EXPECT_EQ(out.gradients["w"], (std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8}));
  }
}

TEST(Functions, HaveTheGradientOfTheirBodies) { // case I15
  auto model = [](bool function) {
    ModelBuilder b;
    b.input("x", {2, 3}).output("y");
    b.weight("w", {3, 3});
    if (!function) {
      b.node("MatMul", {"x", "w"}, {"h"});
      b.node("Tanh", {"h"}, {"y"});
      return b.save("inlined.onnx");
    }
    auto *import = b.model.add_opset_import();
    import->set_domain("local");
    import->set_version(1);
    auto &f = *b.model.add_functions();
    f.set_name("Layer");
    f.set_domain("local");
    for (const char *name : {"a", "m"})
      f.add_input(name);
    f.add_output("r");
    f.add_opset_import()->set_version(17);
    auto &product = *f.add_node();
    product.set_op_type("MatMul");
    product.add_input("a");
    product.add_input("m");
    product.add_output("p");
    auto &tanh = *f.add_node();
    tanh.set_op_type("Tanh");
    tanh.add_input("p");
    tanh.add_output("r");
    b.node("Layer", {"x", "w"}, {"y"}).set_domain("local");
    return b.save("function.onnx");
  };
  HostTensor x = ramp({2, 3});
  auto called = differentiate(model(true), {x}), plain = differentiate(model(false), {x});
  EXPECT_EQ(called.gradients, plain.gradients);
  EXPECT_EQ(plain.gradients["w"].size(), 9u);
}

/// y = the branch `taken` of If(c): x * w or x + w, with w from outside.
std::string branches() {
  ModelBuilder b;
  b.input("x", {3}).input("c", {}, onnx::TensorProto::BOOL).output("y");
  b.weight("w", {3});
  auto &node = b.node("If", {"c"}, {"y"});
  for (bool first : {true, false}) {
    auto &attribute = *node.add_attribute();
    attribute.set_name(first ? "then_branch" : "else_branch");
    attribute.set_type(onnx::AttributeProto::GRAPH);
    auto &graph = *attribute.mutable_g();
    auto &inner = *graph.add_node();
    inner.set_op_type(first ? "Mul" : "Add");
    inner.add_input("x");
    inner.add_input("w");
    inner.add_output("r");
    graph.add_output()->set_name("r");
  }
  return b.save();
}
TEST(ControlFlow, GradientsReachCapturedWeights) { // case I7
  HostTensor x = realTensor({3}, {5, 6, 7});
  ImportOptions options;
  options.values["c"] = {1};
  EXPECT_EQ(differentiate(branches(), {x}, options).gradients["w"],
            (std::vector<double>{5, 12, 21}));
  options.values["c"] = {0};
  EXPECT_EQ(differentiate(branches(), {x}, options).gradients["w"],
            (std::vector<double>{1, 2, 3}));
}

TEST(ControlFlow, LoopsSumTheGradientsOfTheirIterations) { // case I7
  ModelBuilder b;
  b.input("x", {2}).output("y");
  b.weight("w", {2}, {2, 3});
  b.integers("count", {3}).clear_dims();
  auto &node = b.node("Loop", {"count", "", "x"}, {"y"});
  auto &attribute = *node.add_attribute();
  attribute.set_name("body");
  attribute.set_type(onnx::AttributeProto::GRAPH);
  auto &graph = *attribute.mutable_g();
  for (const char *name : {"i", "c", "v"})
    graph.add_input()->set_name(name);
  for (auto [op, in, out] :
       {std::tuple("Identity", std::vector<std::string>{"c"}, "c1"),
        std::tuple("Mul", std::vector<std::string>{"v", "w"}, "v1")}) {
    auto &inner = *graph.add_node();
    inner.set_op_type(op);
    for (const std::string &name : in)
      inner.add_input(name);
    inner.add_output(out);
    graph.add_output()->set_name(out);
  }
  auto out = differentiate(b.save(), {realTensor({2}, {1, 1})});
  EXPECT_EQ(out.gradients["w"], (std::vector<double>{12, 54})); // i * 3 w^2
}

TEST(Determinant, OfLargerMatrices) {
  ModelBuilder b;
  b.input("x", {2}).output("y");
  std::vector<double> at;
  std::vector<float> values;
  for (int i = 0; i < 32; ++i)
    at.push_back(std::sin(1.7 * i) + (i % 16 % 5 == 0 ? 0.5 : 0));
  values.assign(at.begin(), at.end());
  b.weight("w", {2, 4, 4}, values);
  b.node("Det", {"w"}, {"d"});
  b.node("Mul", {"d", "x"}, {"y"});
  std::string path = b.save();
  expectDifferences(path, {realTensor({2}, {1, 1})}, "w", at);
  // A permutation of the identity has determinant -1; one with a row of zeros 0.
  std::vector<double> known = {0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1,
                               0, 0, 0, 0, 1, 2, 3, 4, 0, 1, 5, 6, 2, 0, 1, 1};
  auto out = differentiate(path, {realTensor({2}, {1, 10})}, {}, {{"w", known}});
  EXPECT_DOUBLE_EQ(out.loss, -1);
}

} // namespace
} // namespace sluice::test
