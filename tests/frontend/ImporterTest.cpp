// What tensors and nodes of a model become: names, roles, semantics by version.
#include "tests/frontend/ImportedModel.h"

#include <cmath>

namespace sluice::test {

namespace {

TEST(Names, AreOpaqueAndDistinct) { // case I8
  ModelBuilder b;
  b.input("x", {2, 3}).output("y");
  std::string last = "x";
  for (const char *name : {"a/b", "a:b", "a_b", "a.b"}) {
    b.weight(name, {3});
    b.node("Add", {last, name}, {std::string("sum ") + name});
    last = std::string("sum ") + name;
  }
  b.node("Relu", {last}, {"y"});
  auto m = import(b.save());
  ASSERT_TRUE(m.ok) << m.problems;
  EXPECT_EQ(m.symbols(),
            (std::set<std::string>{"param/a/b", "param/a:b", "param/a_b", "param/a.b"}));
  EXPECT_EQ(m.report.parameters, 4);
  EXPECT_EQ(m.report.parameterElements, 12);
}

TEST(Names, NodesBecomeLocations) {
  ModelBuilder b;
  b.input("x", {2}).output("y");
  b.node("Exp", {"x"}, {"z"}).set_name("block/exp");
  b.node("Neg", {"z"}, {"y"});
  auto m = import(b.save());
  ASSERT_TRUE(m.ok) << m.problems;
  std::vector<std::string> names;
  (*m.module).walk([&](mlir::Operation *op) {
    if (auto loc = llvm::dyn_cast<mlir::NameLoc>(op->getLoc());
        loc && llvm::isa<graph::ExpOp, graph::NegOp>(op))
      names.push_back(loc.getName().str());
  });
  EXPECT_EQ(names, (std::vector<std::string>{"block/exp", "Neg_y"}));
}

TEST(Roles, InitializersThatAreInputsAreParameters) { // case I12
  ModelBuilder b(8, 3);
  b.input("x", {2, 3}).input("w", {3, 4}).output("y");
  b.weight("w", {3, 4});
  b.node("MatMul", {"x", "w"}, {"y"});
  auto m = import(b.save());
  ASSERT_TRUE(m.ok) << m.problems;
  EXPECT_EQ(m.report.inputs.size(), 1u);
  EXPECT_EQ(m.symbols(), std::set<std::string>{"param/w"});
}

TEST(Roles, RunningStatisticsAreBuffers) { // case I4
  ModelBuilder b;
  b.input("x", {2, 3, 4}).output("y");
  for (const char *name : {"scale", "bias", "mean", "variance"})
    b.weight(name, {3});
  b.node("BatchNormalization", {"x", "scale", "bias", "mean", "variance"}, {"y"});
  auto m = import(b.save());
  ASSERT_TRUE(m.ok) << m.problems;
  for (auto parameter : m.parameters()) {
    bool statistic = parameter.getSymName() == "param/mean" ||
                     parameter.getSymName() == "param/variance";
    EXPECT_EQ(parameter.getRole(), statistic ? "buffer" : "parameter");
    EXPECT_EQ(parameter.getTrainable(), !statistic);
  }
  EXPECT_EQ(m.report.parameters, 2);
}

TEST(Roles, TrainingBatchNormNamesItsBuffers) {
  ModelBuilder b;
  b.input("x", {2, 3, 4}).output("y");
  for (const char *name : {"scale", "bias", "mean", "variance"})
    b.weight(name, {3});
  auto &node = b.node("BatchNormalization", {"x", "scale", "bias", "mean", "variance"},
                      {"y", "mean2", "variance2"});
  set(node, "training_mode", int64_t(1));
  auto m = import(b.save());
  ASSERT_TRUE(m.ok) << m.problems;
  int64_t found = 0;
  (*m.module).walk([&](graph::BatchNormTrainOp op) {
    ++found;
    EXPECT_EQ(op.getRunningMean(), "param/mean");
    EXPECT_EQ(op.getRunningVariance(), "param/variance");
    EXPECT_NEAR(op.getMomentum().convertToDouble(), 0.9, 1e-6);
  });
  EXPECT_EQ(found, 1);
  EXPECT_EQ(m.symbols().size(), 4u);
}

TEST(Roles, ConstantOfShapeFeedingAWeightIsAParameter) { // case I21
  ModelBuilder b(9, 3);
  b.input("x", {1, 2, 5, 5}).output("y");
  b.integers("shape", {3, 2, 3, 3});
  b.node("ConstantOfShape", {"shape"}, {"conv/w"});
  b.node("Conv", {"x", "conv/w"}, {"y"});
  auto m = import(b.save());
  ASSERT_TRUE(m.ok) << m.problems;
  EXPECT_EQ(m.symbols(), std::set<std::string>{"param/conv/w"});
}

TEST(Roles, LargeConstantStaysASplat) { // case M8
  ModelBuilder b;
  b.input("x", {8192, 4096}).output("y");
  b.integers("shape", {4096, 4096});
  b.integers("repeats", {2, 1});
  b.node("ConstantOfShape", {"shape"}, {"big"});
  b.node("Tile", {"big", "repeats"}, {"tiled"});
  b.node("Add", {"x", "tiled"}, {"y"});
  auto m = import(b.save());
  ASSERT_TRUE(m.ok) << m.problems;
  EXPECT_TRUE(m.symbols().empty());
  (*m.module).walk([&](graph::ConstantOp op) {
    EXPECT_TRUE(mlir::cast<mlir::DenseElementsAttr>(op.getValue()).isSplat());
  });
}

TEST(Roles, MasksAreConstants) {
  ModelBuilder b;
  b.input("x", {2, 3}).output("y");
  b.weight("mask", {2, 3}, {0, 0, -INFINITY, 0, 0, 0});
  b.weight("bias", {3});
  b.node("Add", {"x", "mask"}, {"z"});
  b.node("Add", {"z", "bias"}, {"y"});
  auto m = import(b.save());
  ASSERT_TRUE(m.ok) << m.problems;
  EXPECT_EQ(m.symbols(), std::set<std::string>{"param/bias"});
}

TEST(Roles, ScalarsAreLiteralsUnlessTheyLookLearned) {
  ModelBuilder b;
  b.input("x", {2}).output("y");
  for (const char *name : {"literal", "logit_scale", "exponent"})
    b.weight(name, {});
  b.node("Exp", {"exponent"}, {"e"});
  b.node("Mul", {"x", "literal"}, {"a"});
  b.node("Mul", {"a", "logit_scale"}, {"b"});
  b.node("Mul", {"b", "e"}, {"y"});
  auto m = import(b.save());
  ASSERT_TRUE(m.ok) << m.problems;
  EXPECT_EQ(m.symbols(), (std::set<std::string>{"param/exponent", "param/logit_scale"}));
}

TEST(Roles, DropoutOfAConstantIsNotFolded) { // case I16
  ModelBuilder b;
  b.input("x", {4}).output("y");
  auto &constant = b.node("Constant", {}, {"c"});
  auto *value = constant.add_attribute();
  value->set_name("value_floats");
  for (int i = 0; i < 4; ++i)
    value->add_floats(1);
  b.weight("ratio", {}, {0.5f});
  auto *mode = b.model.mutable_graph()->add_initializer();
  mode->set_name("training");
  mode->set_data_type(onnx::TensorProto::BOOL);
  mode->add_int32_data(1);
  b.node("Dropout", {"c", "ratio", "training"}, {"d"});
  b.node("Add", {"x", "d"}, {"y"});
  auto m = import(b.save());
  ASSERT_TRUE(m.ok) << m.problems;
  EXPECT_EQ(m.count<graph::DropoutOp>(), 1);
  EXPECT_TRUE(m.symbols().count("control/seed"));
}

TEST(Semantics, SoftmaxChangesAtOpset13) { // case I10
  double expected[] = {0.0453300, 0.2138382};
  for (int i : {0, 1}) {
    ModelBuilder b(i == 0 ? 12 : 13);
    b.input("x", {2, 3, 4}).output("y");
    b.node("Softmax", {"x"}, {"y"});
    auto run = runModel(b.save(), {{"x", ramp({2, 3, 4})}}, {});
    ASSERT_EQ(run.error, "");
    EXPECT_NEAR(run.outputs[0].tensor.reals[0], expected[i], 1e-6);
  }
}

TEST(Semantics, GatherByScalarDropsTheAxis) { // case I11
  ModelBuilder b;
  b.input("x", {3, 4}).output("y");
  auto &index = b.integers("index", {1});
  index.clear_dims();
  b.node("Gather", {"x", "index"}, {"y"});
  auto run = runModel(b.save(), {{"x", ramp({3, 4})}}, {});
  ASSERT_EQ(run.error, "");
  EXPECT_EQ(run.outputs[0].tensor.shape, std::vector<int64_t>{4});
}

TEST(Semantics, FunctionsAreInlined) { // case I15
  ModelBuilder b;
  auto *import = b.model.add_opset_import();
  import->set_domain("local");
  import->set_version(1);
  auto *function = b.model.add_functions();
  function->set_name("Scale");
  function->set_domain("local");
  function->add_input("a");
  function->add_output("b");
  function->add_opset_import()->set_version(17);
  auto *node = function->add_node();
  node->set_op_type("LeakyRelu");
  node->add_input("a");
  node->add_output("b");
  auto *alpha = node->add_attribute();
  alpha->set_name("alpha");
  alpha->set_ref_attr_name("slope");
  alpha->set_type(onnx::AttributeProto::FLOAT);
  function->add_attribute("slope");
  b.input("x", {2}).output("y");
  auto &call = b.node("Scale", {"x"}, {"y"});
  call.set_domain("local");
  set(call, "slope", 0.25);
  auto run = runModel(b.save(), {{"x", realTensor({2}, {-4, 3})}}, {});
  ASSERT_EQ(run.error, "");
  EXPECT_EQ(run.outputs[0].tensor.reals, (std::vector<double>{-1, 3}));
}

TEST(Semantics, MultinomialDrawsClassesByTheirWeights) {
  ModelBuilder b;
  b.input("x", {2, 3}).output("y");
  set(b.node("Multinomial", {"x"}, {"y"}), "sample_size", int64_t(1000));
  constexpr double never = -1e9;
  auto run = runModel(
      b.save(), {{"x", realTensor({2, 3}, {never, 0, never, 0, never, std::log(3.0)})}},
      {});
  ASSERT_EQ(run.error, "");
  auto classes = run.outputs[0].tensor.integers;
  EXPECT_EQ(std::count(classes.begin(), classes.begin() + 1000, 1), 1000);
  EXPECT_EQ(std::count(classes.begin() + 1000, classes.end(), 1), 0);
  EXPECT_NEAR(double(std::count(classes.begin() + 1000, classes.end(), 2)), 750, 60);
}

TEST(Semantics, UnsignedNumbersWrapAround) {
  ModelBuilder b(18);
  b.input("x", {2}, onnx::TensorProto::UINT8).output("sum").output("not");
  b.node("Add", {"x", "x"}, {"sum"});
  b.node("BitwiseNot", {"x"}, {"not"});
  graph::HostTensor x;
  x.elementType = mlir::IntegerType::get(&context(), 32);
  x.shape = {2};
  x.integers = {200, 1};
  auto run = runModel(b.save(), {{"x", x}}, {});
  ASSERT_EQ(run.error, "");
  EXPECT_EQ(run.outputs[0].tensor.integers, (std::vector<int64_t>{144, 2}));
  EXPECT_EQ(run.outputs[1].tensor.integers, (std::vector<int64_t>{55, 254}));
}

} // namespace
} // namespace sluice::test
