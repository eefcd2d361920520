// Trained weights go back into the file they came from.
#include "frontend/OnnxExporter.h"
#include "tests/frontend/ModelBuilder.h"
#include "tests/frontend/ModelRunner.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <tuple>

namespace sluice::test {

namespace {

ModelBuilder linear() {
  ModelBuilder b;
  b.input("x", {1, 2}).output("y");
  b.weight("w", {2, 2});
  b.node("MatMul", {"x", "w"}, {"y"});
  return b;
}

std::vector<double> outputOf(const std::string &path) {
  auto run = runModel(path, {{"x", realTensor({1, 2}, {1, 10})}}, {});
  EXPECT_EQ(run.error, "");
  return run.error.empty() ? run.outputs[0].tensor.reals : std::vector<double>();
}

const float newWeights[] = {1, 2, 3, 4};
const TensorBytes newBytes{reinterpret_cast<const char *>(newWeights), sizeof newWeights};

TEST(Exporter, ReplacesInitializers) {
  std::string in = linear().save("in.onnx"), out = scratchFolder() + "/out.onnx";
  ASSERT_EQ(exportOnnx(in, {{"w", newBytes}}, out), std::nullopt);
  EXPECT_EQ(outputOf(out), (std::vector<double>{31, 42}));
}

TEST(Exporter, RoundsF32ToAModelOf16Bits) {
  for (auto [type, one, rounded] :
       {std::tuple(onnx::TensorProto::FLOAT16, 0x3c00, 0x2e66),
        std::tuple(onnx::TensorProto::BFLOAT16, 0x3f80, 0x3dcd)}) {
    ModelBuilder b = linear();
    auto *tensor = b.model.mutable_graph()->mutable_initializer(0);
    tensor->set_data_type(type);
    tensor->set_raw_data(std::string(8, '\0'));
    std::string in = b.save("in.onnx"), out = scratchFolder() + "/out.onnx";
    const float values[] = {1, 0.1f, -1, -0.1f};
    TensorBytes bytes{reinterpret_cast<const char *>(values), sizeof values, true};
    ASSERT_EQ(exportOnnx(in, {{"w", bytes}}, out), std::nullopt);
    onnx::ModelProto model;
    std::ifstream stream(out, std::ios::binary);
    ASSERT_TRUE(model.ParseFromIstream(&stream));
    const std::string &data = model.graph().initializer(0).raw_data();
    ASSERT_EQ(data.size(), 8u);
    uint16_t words[4];
    std::memcpy(words, data.data(), 8);
    EXPECT_EQ(words[0], one);
    EXPECT_EQ(words[1], rounded);
    EXPECT_EQ(words[2], one | 0x8000);
    EXPECT_EQ(words[3], rounded | 0x8000);
  }
}

TEST(Exporter, MovesExternalDataInside) {
  ModelBuilder b = linear();
  auto *tensor = b.model.mutable_graph()->mutable_initializer(0);
  std::ofstream(scratchFolder() + "/w.bin", std::ios::binary) << tensor->raw_data();
  tensor->clear_raw_data();
  tensor->set_data_location(onnx::TensorProto::EXTERNAL);
  auto *entry = tensor->add_external_data();
  entry->set_key("location");
  entry->set_value("w.bin");
  std::string in = b.save("in.onnx"), out = scratchFolder() + "/out.onnx";
  auto before = outputOf(in);
  ASSERT_EQ(exportOnnx(in, {}, out), std::nullopt);
  std::filesystem::remove(scratchFolder() + "/w.bin");
  EXPECT_EQ(outputOf(out), before);
}

TEST(Exporter, GeneratedWeightsBecomeInitializers) {
  ModelBuilder b(9, 3);
  b.input("x", {1, 2}).output("y");
  b.integers("shape", {2, 2});
  b.node("ConstantOfShape", {"shape"}, {"w"});
  b.node("MatMul", {"x", "w"}, {"y"});
  std::string in = b.save("in.onnx"), out = scratchFolder() + "/out.onnx";
  ASSERT_EQ(exportOnnx(in, {{"w", newBytes}}, out), std::nullopt);
  EXPECT_EQ(outputOf(out), (std::vector<double>{31, 42}));
}

TEST(Exporter, WeightsGoBackIntoConstantNodes) {
  ModelBuilder b(13);
  b.input("x", {1, 2}).output("y");
  auto &value = *b.node("Constant", {}, {"w"}).add_attribute();
  value.set_name("value");
  value.set_type(onnx::AttributeProto::TENSOR);
  *value.mutable_t() = b.weight("w", {2, 2});
  b.model.mutable_graph()->clear_initializer();
  b.node("MatMul", {"x", "w"}, {"y"});
  std::string in = b.save("in.onnx"), out = scratchFolder() + "/out.onnx";
  ASSERT_EQ(exportOnnx(in, {{"w", newBytes}}, out), std::nullopt);
  EXPECT_EQ(outputOf(out), (std::vector<double>{31, 42}));
}
TEST(Exporter, OneSliceStandsForAllCopies) {
  ModelBuilder b(13);
  b.input("x", {1, 2}).output("y");
  b.weight("w", {2, 2}, {5, 6, 5, 6});
  b.node("MatMul", {"x", "w"}, {"y"});
  std::string in = b.save("in.onnx"), out = scratchFolder() + "/out.onnx";
  ASSERT_EQ(exportOnnx(in, {{"w", {newBytes.data, 8}}}, out), std::nullopt);
  std::vector<double> y = outputOf(out);
  const auto *slice = reinterpret_cast<const float *>(newBytes.data);
  EXPECT_DOUBLE_EQ(y[0] * slice[1], y[1] * slice[0]); // both rows are the slice
}
TEST(Exporter, RefusesUnknownNamesAndSizesAndKeepsTheOldFile) {
  std::string in = linear().save("in.onnx"), out = scratchFolder() + "/kept.onnx";
  std::ofstream(out) << "before";
  EXPECT_NE(exportOnnx(in, {{"v", newBytes}}, out).value_or("").find("no weight 'v'"),
            std::string::npos);
  TensorBytes half{newBytes.data, 8};
  EXPECT_NE(exportOnnx(in, {{"w", half}}, out).value_or("").find("has 8 bytes"),
            std::string::npos);
  std::string text;
  std::ifstream(out) >> text;
  EXPECT_EQ(text, "before");
  auto problem = exportOnnx(in, {{"w", newBytes}}, scratchFolder() + "/none/out.onnx");
  EXPECT_NE(problem.value_or("").find("cannot be created"), std::string::npos);
}

} // namespace
} // namespace sluice::test
