// What the importer refuses, and what it says.
#include "tests/frontend/ImportedModel.h"

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <unistd.h>

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

TEST(Refusals, NewerFormsOfGroupQueryAttentionByName) {
  auto problemsWith = [](int input, const std::string &attribute, int64_t value) {
    ModelBuilder b;
    b.input("q", {1, 2, 8}).input("k", {1, 2, 4}).input("v", {1, 2, 4});
    b.input("extra", {4}).output("y");
    std::vector<std::string> inputs = {"q", "k", "v"};
    if (input > 0) {
      inputs.resize(input);
      inputs.push_back("extra");
    }
    auto &node = b.node("GroupQueryAttention", inputs, {"y"});
    node.set_domain("com.microsoft");
    set(node, "num_heads", int64_t{4});
    set(node, "kv_num_heads", int64_t{2});
    if (!attribute.empty())
      set(node, attribute, value);
    return import(b.save()).problems;
  };
  EXPECT_TRUE(contains(problemsWith(0, "causal", 0), "not causal"));
  EXPECT_TRUE(contains(problemsWith(0, "qk_output", 1), "qk_output"));
  EXPECT_TRUE(
      contains(problemsWith(0, "sliding_window_cache", 1), "sliding_window_cache"));
  EXPECT_TRUE(contains(problemsWith(14, "", 0), "q_norm_weight"));
  EXPECT_TRUE(contains(problemsWith(16, "", 0), "query_seqlens"));
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

TEST(Refusals, TypesThatDoNotFit) {
  ModelBuilder b;
  b.input("x", {2}).input("n", {2}, onnx::TensorProto::INT64).output("y");
  b.node("Add", {"x", "n"}, {"y"}).set_name("sum");
  auto m = import(b.save());
  EXPECT_FALSE(m.ok);
  EXPECT_TRUE(contains(m.problems, "(node 'sum'): operands are of types f32 and i64"));
}

TEST(Refusals, DimensionsThatContradict) {
  ModelBuilder b;
  b.input("x", {2, 3}).output("y").output("z");
  b.weight("w", {4, 5});
  b.weight("v", {2, 4});
  b.node("MatMul", {"x", "w"}, {"y"}).set_name("product");
  b.node("Add", {"x", "v"}, {"z"}).set_name("sum");
  auto m = import(b.save());
  EXPECT_FALSE(m.ok);
  EXPECT_TRUE(contains(m.problems, "(node 'product'): operand 1 has 4 rows, expected 3"));
  EXPECT_TRUE(contains(m.problems, "(node 'sum'): shapes 2x3 and 2x4 do not broadcast"));
}

TEST(Refusals, ResultsWithAnotherShapeThanDeclaredAreNoted) {
  ModelBuilder b;
  b.input("x", {2, 3}).output("y");
  auto &type = *b.model.mutable_graph()->mutable_output(0)->mutable_type();
  for (int64_t dim : {2, 7})
    type.mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_value(dim);
  b.node("Relu", {"x"}, {"y"});
  auto m = import(b.save());
  ASSERT_TRUE(m.ok) << m.problems;
  std::string notes;
  for (const std::string &note : m.report.notes)
    notes += note + "\n";
  EXPECT_TRUE(contains(notes, "output 'y' is declared as 2x7 and has shape 2x3"));
}

TEST(Refusals, OperatorsNewerThanKnown) {
  ModelBuilder b(23, 11);
  b.input("x", {2}).output("y");
  b.node("TensorScatter", {"x"}, {"y"}).set_name("later");
  EXPECT_TRUE(contains(import(b.save()).problems,
                       "'TensorScatter' (node 'later'): not supported yet"));
  ModelBuilder inside;
  auto *local = inside.model.add_opset_import();
  local->set_domain("local");
  local->set_version(1);
  auto *function = inside.model.add_functions();
  function->set_name("F");
  function->set_domain("local");
  function->add_input("a");
  function->add_output("b");
  function->add_opset_import()->set_version(99);
  auto *node = function->add_node();
  node->set_op_type("Relu");
  node->add_input("a");
  node->add_output("b");
  inside.input("x", {2}).output("y");
  inside.node("F", {"x"}, {"y"}).set_domain("local");
  EXPECT_TRUE(contains(import(inside.save()).problems,
                       "function 'local.F' uses opset 99, newer than the newest known"));
}

TEST(Refusals, HugeInputsAndResults) {
  ModelBuilder b;
  b.input("x", {1 << 20, 1 << 20}).output("y");
  b.node("Relu", {"x"}, {"y"});
  EXPECT_TRUE(contains(import(b.save()).problems, "input 'x' has shape 1048576x1048576"));
  ModelBuilder grown;
  grown.input("x", {1}).output("y");
  grown.integers("shape", {1 << 20, 1 << 20});
  grown.node("Expand", {"x", "shape"}, {"y"}).set_name("grow");
  EXPECT_TRUE(contains(import(grown.save()).problems, "(node 'grow'): a tensor of"));
}

TEST(Refusals, ResultsWhoseSizeDependsOnData) {
  struct Case {
    const char *op;
    std::vector<std::string> operands;
    const char *bound;
  };
  for (const Case &c : {Case{"NonZero", {"x"}, "TopK"},
                        Case{"Compress", {"x", "mask"}, "TopK and Gather"},
                        Case{"Unique", {"x"}, "OneHot"},
                        Case{"NonMaxSuppression", {"boxes", "scores"}, "TopK"}}) {
    ModelBuilder b;
    b.input("x", {4}).input("mask", {4}, onnx::TensorProto::BOOL);
    b.input("boxes", {1, 3, 4}).input("scores", {1, 2, 3}).output("y");
    b.node(c.op, c.operands, {"y"}).set_name("here");
    auto m = import(b.save());
    EXPECT_FALSE(m.ok);
    for (const char *part : {"(node 'here')", "depends on data", "`values`", c.bound})
      EXPECT_TRUE(contains(m.problems, part)) << c.op;
  }
}

TEST(Refusals, TypesThatAreNotThereYetAreNamed) {
  ModelBuilder b(19, 9);
  b.input("x", {2}).output("y");
  set(b.node("Cast", {"x"}, {"y"}), "to", int64_t(24));
  EXPECT_TRUE(contains(import(b.save()).problems, "float8e8m0"));
  ModelBuilder quantized(21, 10);
  quantized.input("x", {2}).output("y");
  quantized.weight("scale", {}, {0.5});
  set(quantized.node("QuantizeLinear", {"x", "scale"}, {"y"}), "output_dtype",
      int64_t(26));
  EXPECT_TRUE(contains(import(quantized.save()).problems,
                       "quantisation to int2 is not supported"));
}

/// Anonymous memory of this process in bytes: what is copied, not what is mapped.
int64_t anonymousBytes() {
  // The counters of /proc/self/status may lag by megabytes where there are many cores.
  std::ifstream account("/proc/self/smaps_rollup");
  for (std::string line; std::getline(account, line);)
    if (line.rfind("Anonymous:", 0) == 0)
      return std::stoll(line.substr(10)) * 1024;
  return -1;
}

/// The property behind "a 3 GB model imports in 1.2 times its size": weights are never
/// copied.
TEST(ExternalData, WeightsAreMappedNotCopied) {
  constexpr int64_t rows = 7000, layers = 2, bytes = rows * rows * 4; // 2 x 196 MB
  ModelBuilder b;
  b.input("x", {1, int(rows)}).output("h2");
  std::string from = "x";
  for (int64_t i = 0; i < layers; ++i) {
    auto &tensor = b.weight("w" + std::to_string(i), {1}, {0});
    tensor.clear_raw_data();
    tensor.clear_float_data();
    tensor.clear_dims();
    tensor.add_dims(rows);
    tensor.add_dims(rows);
    tensor.set_data_location(onnx::TensorProto::EXTERNAL);
    for (auto [key, value] : {std::pair("location", std::string("large.bin")),
                              std::pair("offset", std::to_string(i * bytes))}) {
      auto *entry = tensor.add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    }
    std::string to = "h" + std::to_string(i + 1);
    b.node("MatMul", {from, tensor.name()}, {to});
    from = to;
  }
  std::string path = b.save("large/model.onnx");
  std::string data = scratchFolder() + "/large/large.bin";
  int file = ::open(data.c_str(), O_CREAT | O_RDWR | O_TRUNC, 0600);
  ASSERT_EQ(::ftruncate(file, layers * bytes), 0); // no blocks on the disk
  ::close(file);
  int64_t before = anonymousBytes();
  auto m = import(path);
  ASSERT_TRUE(m.ok) << m.problems;
  EXPECT_EQ(m.report.parameterElements, layers * rows * rows);
  if (before < 0)
    GTEST_SKIP() << "no exact account of memory in /proc/self/smaps_rollup";
  EXPECT_LT(anonymousBytes() - before, int64_t(32) << 20);
  std::filesystem::remove(data);
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
