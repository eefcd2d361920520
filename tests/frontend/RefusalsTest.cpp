// What the importer refuses, and what it says.
#include "tests/frontend/ImportedModel.h"

#include <filesystem>
#include <fstream>

namespace sluice::test {

namespace {

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
  b.input("x", {2}, onnx::TensorProto::FLOAT16)
      .input("z", {2}, onnx::TensorProto::DOUBLE);
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
  EXPECT_TRUE(
      contains(import(scratchFolder() + "/absent.onnx").problems, "cannot be read"));
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
    std::ofstream(scratchFolder() + "/external/weights.bin", std::ios::binary)
        << "abcd" << bytes;
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

} // namespace
} // namespace sluice::test
