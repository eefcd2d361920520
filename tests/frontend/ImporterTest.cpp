// The importer's rules: names, roles, shapes, files, and what it refuses.
#include "tests/frontend/ModelBuilder.h"
#include "tests/frontend/ModelRunner.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <set>

namespace sluice::test {

namespace {

using mlir::cast;

struct Imported {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  ImportReport report;
  std::string problems;
  bool ok = false;

  std::vector<graph::ParameterOp> parameters() {
    auto ops = (*module).getOps<graph::ParameterOp>();
    return {ops.begin(), ops.end()};
  }
  std::set<std::string> symbols() {
    std::set<std::string> names;
    for (auto parameter : parameters())
      names.insert(parameter.getSymName().str());
    return names;
  }
  template <typename Op> int64_t count() {
    int64_t found = 0;
    (*module).walk([&](Op) { ++found; });
    return found;
  }
};

Imported import(const std::string &path, const ImportOptions &options = {}) {
  Imported result;
  auto module = importOnnx(context(), path, options, result.report);
  result.ok = succeeded(module);
  if (result.ok)
    result.module = std::move(*module);
  for (const std::string &problem : result.report.problems())
    result.problems += problem + "\n";
  return result;
}

testing::AssertionResult contains(const std::string &text, const std::string &part) {
  if (text.find(part) != std::string::npos)
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << part << "' is not in: " << text;
}

graph::HostTensor ramp(std::vector<int64_t> shape, double scale = 0.1) {
  int64_t count = 1;
  for (int64_t dim : shape)
    count *= dim;
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(float(scale * double(i)));
  return realTensor(std::move(shape), values);
}

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
    EXPECT_TRUE(cast<mlir::DenseElementsAttr>(op.getValue()).isSplat());
  });
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

TEST(Refusals, FunctionsThatCallThemselves) {
  ModelBuilder b;
  auto *import = b.model.add_opset_import();
  import->set_domain("local");
  import->set_version(1);
  auto *function = b.model.add_functions();
  function->set_name("F");
  function->set_domain("local");
  function->add_input("a");
  function->add_output("b");
  auto *node = function->add_node();
  node->set_op_type("F");
  node->set_domain("local");
  node->add_input("a");
  node->add_output("b");
  b.input("x", {2}).output("y");
  b.node("F", {"x"}, {"y"}).set_domain("local");
  auto m = test::import(b.save());
  EXPECT_FALSE(m.ok);
  EXPECT_TRUE(contains(m.problems, "calls itself"));
}

TEST(Shapes, SymbolsAreBoundAndArithmeticFolds) { // case I6
  ModelBuilder b;
  b.input("x", {"batch", 3, 4}).output("y");
  b.integers("zero", {0});
  b.integers("rest", {-1});
  b.weight("w", {12, 5});
  b.node("Shape", {"x"}, {"s"});
  b.node("Gather", {"s", "zero"}, {"n"});
  set(b.node("Concat", {"n", "rest"}, {"shape"}), "axis", int64_t(0));
  b.node("Reshape", {"x", "shape"}, {"flat"});
  b.node("MatMul", {"flat", "w"}, {"y"});
  ImportOptions options;
  options.dimensions["batch"] = 7;
  auto m = import(b.save(), options);
  ASSERT_TRUE(m.ok) << m.problems;
  EXPECT_EQ(m.report.outputs[0].shape, (std::vector<int64_t>{7, 5}));
  EXPECT_EQ(m.count<graph::GatherOp>() + m.count<graph::ConcatOp>() +
                m.count<graph::ConstantOp>(),
            0);
}

TEST(Shapes, UnboundDimensionNamesInputAndKey) {
  ModelBuilder b;
  b.input("tokens", {"batch", 3}).output("y");
  b.node("Relu", {"tokens"}, {"y"});
  auto m = import(b.save());
  EXPECT_FALSE(m.ok);
  for (const char *part : {"'tokens'", "'batch'", "shapes:", "--shape"})
    EXPECT_TRUE(contains(m.problems, part));
}

TEST(Shapes, ContradictionsAndUnknownNamesAreReportedTogether) {
  ModelBuilder b;
  b.input("x", {"n", 3}).input("z", {"n"}).output("y");
  b.node("Relu", {"x"}, {"y"});
  ImportOptions options;
  options.shapes = {{"x", {2, 4}}, {"z", {5}}, {"w", {1}}};
  auto m = import(b.save(), options);
  EXPECT_FALSE(m.ok);
  EXPECT_TRUE(contains(m.problems, "size 3 in dimension 1"));
  EXPECT_TRUE(contains(m.problems, "binds dimension 'n' to 5"));
  EXPECT_TRUE(contains(m.problems, "names 'w', which is no input"));
}

TEST(Refusals, AllUnsupportedOpsInOneReport) { // case I19
  ModelBuilder b;
  b.input("x", {2}).output("y").output("z");
  b.node("Frobnicate", {"x"}, {"a"}).set_name("first");
  b.node("Relu", {"a"}, {"y"});
  b.node("Twiddle", {"x"}, {"z"}).set_name("second");
  auto m = import(b.save());
  EXPECT_FALSE(m.ok);
  ASSERT_EQ(m.report.unsupported.size(), 2u);
  EXPECT_EQ(m.report.unsupported[0].node, "first");
  EXPECT_EQ(m.report.unsupported[1].node, "second");
  EXPECT_EQ(m.report.ops["Relu"], 1);
}

TEST(Refusals, NewerVersionsNameTheLimit) { // case I18
  for (int ir : {10, 13, 14}) {
    ModelBuilder b(17, ir);
    b.input("x", {2}).output("y");
    b.node("Relu", {"x"}, {"y"});
    auto m = import(b.save());
    EXPECT_EQ(m.ok, ir <= 13);
    if (ir > 13)
      EXPECT_TRUE(contains(m.problems, "newest known, 13"));
  }
  ModelBuilder b(99);
  b.input("x", {2}).output("y");
  b.node("Relu", {"x"}, {"y"});
  EXPECT_TRUE(contains(import(b.save()).problems, "newest known, 23"));
}

TEST(Refusals, OtherFloatTypesAreListedWhenTraining) {
  ModelBuilder b;
  b.input("x", {2}, onnx::TensorProto::FLOAT16).input("z", {2}, onnx::TensorProto::DOUBLE);
  b.output("y").output("v");
  b.node("Relu", {"x"}, {"y"});
  b.node("Relu", {"z"}, {"v"});
  std::string path = b.save();
  EXPECT_TRUE(import(path).ok);
  auto m = import(path, ImportOptions::from(TrainingSpec()));
  EXPECT_FALSE(m.ok);
  ASSERT_EQ(m.report.unsupported.size(), 2u);
  EXPECT_TRUE(contains(m.report.unsupported[0].reason, "f16 is not yet supported"));
}

TEST(Refusals, MissingEmptyAndDamagedFiles) {
  EXPECT_TRUE(contains(import(scratchFolder() + "/absent.onnx").problems, "cannot be read"));
  EXPECT_TRUE(contains(import(scratchFolder()).problems, "is not a file"));
  std::string path = scratchFolder() + "/bad.onnx";
  for (const char *bytes : {"", "this is no model at all"}) {
    std::ofstream(path) << bytes;
    EXPECT_TRUE(contains(import(path).problems, "not an ONNX model"));
  }
}

TEST(Refusals, HugeAndNegativeTensors) {
  ModelBuilder b;
  b.input("x", {2}).output("y");
  auto &tensor = b.weight("w", {2});
  tensor.clear_dims();
  tensor.add_dims(int64_t(1) << 40);
  b.node("Add", {"x", "w"}, {"y"});
  EXPECT_TRUE(contains(import(b.save()).problems, "2^36"));
  tensor.set_dims(0, -2);
  EXPECT_TRUE(contains(import(b.save()).problems, "negative"));
  tensor.set_dims(0, 3);
  EXPECT_TRUE(contains(import(b.save()).problems, "holds 8 bytes"));
}

TEST(Refusals, CyclesAndDuplicateNames) {
  ModelBuilder b;
  b.input("x", {2}).output("y");
  b.node("Add", {"x", "y"}, {"z"});
  b.node("Relu", {"z"}, {"y"});
  EXPECT_TRUE(contains(import(b.save()).problems, "cyclic"));
  ModelBuilder twice;
  twice.input("x", {2}).output("y");
  twice.node("Relu", {"x"}, {"y"});
  twice.node("Exp", {"x"}, {"y"});
  EXPECT_TRUE(contains(import(twice.save()).problems, "given twice"));
}

TEST(ExternalData, LoadsFromAnywhereWithAndWithoutLength) { // case I5
  for (const char *length : {"48", "0", ""}) {
    ModelBuilder b;
    b.input("x", {1, 3}).output("y");
    auto &tensor = b.weight("w", {3, 4});
    std::string bytes = tensor.raw_data();
    tensor.clear_raw_data();
    tensor.set_data_location(onnx::TensorProto::EXTERNAL);
    auto add = [&](const char *key, const std::string &value) {
      auto *entry = tensor.add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    };
    add("location", "weights.bin");
    add("offset", "4");
    if (*length)
      add("length", length);
    b.node("MatMul", {"x", "w"}, {"y"});
    std::string path = b.save("external/model.onnx");
    std::ofstream(scratchFolder() + "/external/weights.bin", std::ios::binary) << "abcd" << bytes;
    auto run = runModel(path, {{"x", realTensor({1, 3}, {1, 0, 0})}}, {});
    ASSERT_EQ(run.error, "");
    EXPECT_NEAR(run.outputs[0].tensor.reals[3], 0.4, 1e-6);
    std::filesystem::resize_file(scratchFolder() + "/external/weights.bin", 20);
    EXPECT_TRUE(contains(import(path).problems, "needs bytes 4 to 52"));
    std::filesystem::remove(scratchFolder() + "/external/weights.bin");
    EXPECT_TRUE(contains(import(path).problems, "missing beside the model"));
  }
}

TEST(ExternalData, MayNotLeaveTheModelsFolder) {
  for (const char *location : {"../secret.bin", "/etc/passwd", "sub/../../secret.bin"}) {
    ModelBuilder b;
    b.input("x", {1, 3}).output("y");
    auto &tensor = b.weight("w", {3, 4});
    tensor.clear_raw_data();
    tensor.set_data_location(onnx::TensorProto::EXTERNAL);
    auto *entry = tensor.add_external_data();
    entry->set_key("location");
    entry->set_value(location);
    b.node("MatMul", {"x", "w"}, {"y"});
    std::string path = b.save("external/model.onnx");
    std::ofstream(scratchFolder() + "/secret.bin") << std::string(48, 'x');
    auto m = import(path);
    EXPECT_FALSE(m.ok);
    EXPECT_TRUE(m.problems.find("folder") != std::string::npos ||
                m.problems.find("beside the model") != std::string::npos)
        << m.problems;
  }
}

TEST(Structure, TieAndUntie) {
  ModelBuilder b;
  b.input("x", {2, 3}).output("y");
  b.weight("first", {3, 4});
  b.weight("second", {4, 3});
  b.node("MatMul", {"x", "first"}, {"h"});
  b.node("MatMul", {"h", "second"}, {"y"});
  ImportOptions options;
  options.tie = {{"first", "second", true}};
  auto tied = import(b.save(), options);
  ASSERT_TRUE(tied.ok) << tied.problems;
  EXPECT_EQ(tied.symbols(), std::set<std::string>{"param/first"});
  options.tie[0].transpose = false;
  EXPECT_TRUE(contains(import(b.save(), options).problems, "whose shapes differ"));

  ModelBuilder shared;
  shared.input("x", {2, 3}).output("y");
  shared.weight("w", {3, 3});
  shared.node("MatMul", {"x", "w"}, {"h"});
  shared.node("MatMul", {"h", "w"}, {"y"});
  auto once = import(shared.save());
  EXPECT_EQ(once.symbols(), std::set<std::string>{"param/w"});
  ImportOptions apart;
  apart.untie = {"w"};
  auto both = import(shared.save(), apart);
  ASSERT_TRUE(both.ok) << both.problems;
  EXPECT_EQ(both.symbols(), (std::set<std::string>{"param/w", "param/w@2"}));
}

TEST(Structure, EqualAndSharedWeightsAreNoted) {
  std::vector<float> values, flipped(16 * 8);
  for (int i = 0; i < 8 * 16; ++i) {
    values.push_back(float(i * 37 % 101));
    flipped[i % 16 * 8 + i / 16] = values.back();
  }
  ModelBuilder b;
  b.input("x", {2, 8}).output("y");
  b.weight("a", {8, 16}, values);
  b.weight("b", {16, 8}, flipped);
  b.weight("c", {8, 16}, values);
  b.node("MatMul", {"x", "a"}, {"h"});
  b.node("MatMul", {"h", "b"}, {"k"});
  b.node("MatMul", {"k", "c"}, {"l"});
  b.node("MatMul", {"k", "a"}, {"m"});
  b.node("Add", {"l", "m"}, {"y"});
  auto m = import(b.save());
  ASSERT_TRUE(m.ok) << m.problems;
  std::string notes;
  for (const std::string &note : m.report.notes)
    notes += note + "\n";
  EXPECT_TRUE(contains(notes, "'a' is read by 2 nodes"));
  EXPECT_TRUE(contains(notes, "'b' holds the same values as 'a' transposed"));
  EXPECT_TRUE(contains(notes, "'c' holds the same values as 'a' and"));
}

TEST(Structure, BatchOfOneIsReplacedWhereProvable) {
  ModelBuilder b;
  b.input("x", {1, 3, 4}).output("y");
  auto *dim = b.model.mutable_graph()->mutable_output(0)->mutable_type()->mutable_tensor_type();
  dim->mutable_shape()->add_dim()->set_dim_value(1);
  b.integers("shape", {1, 12});
  b.node("Reshape", {"x", "shape"}, {"y"});
  ImportOptions options;
  options.shapes["x"] = {8, 3, 4};
  auto m = import(b.save(), options);
  ASSERT_TRUE(m.ok) << m.problems;
  EXPECT_EQ(m.report.outputs[0].shape, (std::vector<int64_t>{8, 12}));

  ModelBuilder mixes = b;
  mixes.model.mutable_graph()->mutable_initializer(0)->set_int64_data(0, 12);
  mixes.model.mutable_graph()->mutable_initializer(0)->set_int64_data(1, -1);
  auto bad = import(mixes.save(), options);
  EXPECT_FALSE(bad.ok);
  EXPECT_TRUE(contains(bad.problems, "batch size of 1 inside"));
}

} // namespace
} // namespace sluice::test
