// Every model of the shared folder imports or says exactly why not; known results.
#include "tests/frontend/ModelRunner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace sluice::test {

namespace fs = std::filesystem;

namespace {

std::string shared(const std::string &path) {
  return std::string(SLUICE_SHARED) + "/" + path;
}

#define NEED(path)                                                                       \
  if (!fs::exists(shared(path)))                                                         \
  GTEST_SKIP() << "no " << shared(path)

struct ModelCase {
  const char *path;
  std::map<std::string, std::vector<int64_t>> shapes;
  std::map<std::string, std::vector<double>> values;
  const char *problem; // null: imports; else part of what must be reported
  int64_t parameterElements = -1;
};

const ModelCase modelCases[] = {
    {"basic-pitch/nmp.onnx", {{"serving_default_input_2:0", {1, 43844, 1}}}, {}, nullptr},
    {"burn-onnx/disconnected_subgraphs.onnx", {}, {}, nullptr},
    {"burn-onnx/edge_cases.onnx", {}, {}, nullptr},
    {"burn-onnx/external_data.onnx", {}, {}, nullptr},
    {"burn-onnx/mixed_data.onnx", {}, {}, nullptr},
    {"burn-onnx/mnist.onnx", {}, {}, nullptr},
    {"burn-onnx/nested_if_loop_if_scan.onnx",
     {},
     {{"M", {3}}, {"cond", {1}}, {"condition1", {1}}, {"condition2", {1}}},
     nullptr},
    {"burn-onnx/opset_01.onnx", {}, {}, nullptr},
    {"burn-onnx/opset_11.onnx", {}, {}, nullptr},
    {"burn-onnx/opset_13.onnx", {}, {}, ""},
    {"burn-onnx/opset_22.onnx", {}, {}, nullptr},
    {"burn-onnx/opset_24.onnx", {}, {}, "newer than the newest known, 23"},
    {"burn-onnx/very_long_names.onnx", {}, {}, nullptr},
    {"byte-bilstm/model.onnx", {{"input", {2, 8}}}, {}, nullptr},
    {"magika/magika_fast_v2_1.onnx", {{"bytes", {2, 1024}}}, {}, nullptr},
    {"magika/magika_standard_v3_3.onnx", {{"bytes", {2, 2048}}}, {}, nullptr},
    {"onnx-light/light_bvlc_alexnet.onnx", {}, {}, nullptr},
    {"onnx-light/light_densenet121.onnx", {}, {}, nullptr},
    {"onnx-light/light_inception_v1.onnx", {}, {}, nullptr},
    {"onnx-light/light_inception_v2.onnx", {}, {}, nullptr},
    {"onnx-light/light_resnet50.onnx", {}, {}, nullptr},
    {"onnx-light/light_shufflenet.onnx", {}, {}, nullptr},
    {"onnx-light/light_squeezenet.onnx", {}, {}, nullptr},
    {"onnx-light/light_vgg19.onnx", {}, {}, nullptr},
    {"onnx-light/light_zfnet512.onnx", {}, {}, nullptr},
    {"onnxruntime-go/example_0_dim_output.onnx", {}, {}, ""},
    {"onnxruntime-go/example_big_compute.onnx", {}, {}, nullptr, 0},
    {"onnxruntime-go/example_big_fanout.onnx", {}, {}, nullptr},
    {"onnxruntime-go/example_lora.onnx", {}, {}, nullptr},
    {"onnxruntime-go/sklearn_randomforest.onnx", {{"X", {1, 4}}}, {}, "not trainable"},
    {"seizureguard/base_pat_02.onnx", {{"input", {4, 18, 1024}}}, {}, nullptr, 310702},
    {"seizureguard/base_pat_02_fp32.onnx",
     {{"input", {4, 18, 1024}}},
     {},
     nullptr,
     310702},
    {"seizureguard/eval_model.onnx", {{"input", {4, 18, 1024}}}, {}, nullptr, 310702},
    {"seizureguard/inference.onnx", {{"input", {4, 18, 1024}}}, {}, nullptr, 310702},
    {"seizureguard/optimizer_model.onnx", {}, {}, "AdamWOptimizer"},
    {"seizureguard/training_model.onnx", {{"input", {4, 18, 1024}}}, {}, "ConvGrad"},
    {"silero-vad/silero_vad.onnx",
     {{"input", {1, 576}}, {"state", {2, 1, 128}}},
     {{"sr", {16000}}},
     nullptr},
    {"silero-vad/silero_vad_16k_op15.onnx",
     {{"input", {1, 576}}, {"state", {2, 1, 128}}},
     {{"sr", {16000}}},
     nullptr},
    {"silero-vad/silero_vad_half.onnx",
     {{"input", {1, 576}}, {"state", {2, 1, 128}}},
     {},
     nullptr},
    {"silero-vad/silero_vad_op18_ifless.onnx",
     {{"input", {1, 576}}, {"state", {2, 1, 128}}},
     {{"sr", {16000}}},
     nullptr},
    {"wonnx/opt-mnist.onnx", {}, {}, nullptr},
};

class Models : public testing::TestWithParam<ModelCase> {};

TEST_P(Models, ImportsOrSaysWhyNot) {
  const ModelCase &c = GetParam();
  NEED(std::string("models/") + c.path);
  ImportOptions options;
  options.shapes = c.shapes;
  options.values = c.values;
  ImportReport report;
  auto module =
      importOnnx(context(), shared(std::string("models/") + c.path), options, report);
  std::string problems;
  for (const std::string &problem : report.problems())
    problems += problem + "\n";
  if (!c.problem) {
    EXPECT_TRUE(succeeded(module)) << problems;
    EXPECT_FALSE(report.outputs.empty());
    if (c.parameterElements >= 0)
      EXPECT_EQ(report.parameterElements, c.parameterElements);
    return;
  }
  EXPECT_TRUE(failed(module));
  EXPECT_NE(problems.find(c.problem), std::string::npos) << problems;
  EXPECT_FALSE(report.ops.empty() && report.errors.empty());
}
INSTANTIATE_TEST_SUITE_P(Shared, Models, testing::ValuesIn(modelCases), [](auto &info) {
  std::string name = info.param.path;
  for (char &c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)))
      c = '_';
  return name;
});

/// Rows of "label, pixels..." of the ERAN test set.
std::vector<std::pair<int, std::vector<double>>> mnistImages() {
  std::vector<std::pair<int, std::vector<double>>> images;
  std::ifstream file(shared("data/eran/mnist_test.csv"));
  for (std::string line; std::getline(file, line);) {
    std::stringstream cells(line);
    std::vector<double> numbers;
    for (std::string cell; std::getline(cells, cell, ',');)
      numbers.push_back(std::stod(cell));
    if (numbers.size() == 785)
      images.push_back({int(numbers[0]), {numbers.begin() + 1, numbers.end()}});
  }
  return images;
}

/// Correct answers of a model on the 100 images, all in one batch.
int mnistAccuracy(const std::string &model, const std::string &input, double mean,
                  double scale) {
  auto images = mnistImages();
  std::vector<double> pixels;
  for (auto &[label, image] : images)
    for (double pixel : image)
      pixels.push_back(float((pixel - mean) / scale));
  auto run =
      runModel(shared("models/" + model),
               {{input, realTensor({int64_t(images.size()), 1, 28, 28}, pixels)}}, {});
  EXPECT_EQ(run.error, "");
  if (!run.error.empty())
    return -1;
  int right = 0;
  for (size_t i = 0; i < images.size(); ++i) {
    auto first = run.outputs[0].tensor.reals.begin() + i * 10;
    right += std::max_element(first, first + 10) - first == images[i].first;
  }
  return right;
}

TEST(Accuracy, BurnMnist) {
  NEED("models/burn-onnx/mnist.onnx");
  EXPECT_EQ(mnistAccuracy("burn-onnx/mnist.onnx", "input.1", 255 * 0.1307, 255 * 0.3081),
            100);
}
TEST(Accuracy, CntkMnistOfIr3) {
  NEED("models/wonnx/opt-mnist.onnx");
  EXPECT_EQ(mnistAccuracy("wonnx/opt-mnist.onnx", "Input3", 0, 1), 99);
}

std::vector<double> wave(int64_t count, double scale) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(float(scale * std::sin(0.05 * double(i)) +
                           scale / 2 * std::sin(0.31 * double(i))));
  return values;
}

TEST(SileroVad, WeightsInConstantNodesBecomeParameters) {
  NEED("models/silero-vad/silero_vad.onnx");
  ImportOptions options;
  options.shapes = {{"input", {1, 576}}, {"state", {2, 1, 128}}};
  options.values["sr"] = {16000};
  ImportReport plain, promoted, direct;
  std::string folder = shared("models/silero-vad/");
  ASSERT_TRUE(
      succeeded(importOnnx(context(), folder + "silero_vad.onnx", options, plain)));
  EXPECT_EQ(plain.parameters, 0);
  EXPECT_NE(llvm::find_if(plain.notes,
                          [](const std::string &note) {
                            return note.find("`promote: [If_0_then_branch__Inline_0__"
                                             "encoder.0.reparam_conv.weight]`") !=
                                   std::string::npos;
                          }),
            plain.notes.end());
  options.promote = {"*Inline_0__encoder.*", "*Inline_0__decoder.*"};
  ASSERT_TRUE(
      succeeded(importOnnx(context(), folder + "silero_vad.onnx", options, promoted)));
  EXPECT_EQ(promoted.parameters, 14);
}

/// The exports are one network at several opsets: the same outputs for the same input.
TEST(SileroVad, ExportsAgree) {
  NEED("models/silero-vad/silero_vad.onnx");
  std::vector<NamedTensor> inputs = {{"input", realTensor({1, 576}, wave(576, 0.3))},
                                     {"state", realTensor({2, 1, 128}, wave(256, 0.1))}};
  std::vector<RunResult> runs;
  for (const char *name :
       {"silero_vad.onnx", "silero_vad_16k_op15.onnx", "silero_vad_op18_ifless.onnx"}) {
    ImportOptions options;
    options.values["sr"] = {16000};
    runs.push_back(
        runModel(shared(std::string("models/silero-vad/") + name), inputs, options));
    ASSERT_EQ(runs.back().error, "") << name;
  }
  for (size_t i = 1; i < runs.size(); ++i)
    for (size_t k = 0; k < 2; ++k)
      EXPECT_EQ(compare(runs[i].outputs[k].tensor, runs[0].outputs[k].tensor, 0, 1e-4),
                "");
}

TEST(Magika, GivesProbabilities) {
  NEED("models/magika/magika_fast_v2_1.onnx");
  graph::HostTensor bytes;
  bytes.elementType = mlir::IntegerType::get(&context(), 32);
  bytes.shape = {1, 1024};
  std::string text = "#include <stdio.h>\nint main(void) { return 0; }\n";
  for (int i = 0; i < 1024; ++i)
    bytes.integers.push_back(i < int(text.size()) ? text[i] : 256);
  auto run =
      runModel(shared("models/magika/magika_fast_v2_1.onnx"), {{"bytes", bytes}}, {});
  ASSERT_EQ(run.error, "");
  double sum = 0;
  for (double p : run.outputs[0].tensor.reals)
    sum += p;
  EXPECT_NEAR(sum, 1, 1e-4);
}

/// A shape that depends on the data can be had for data that is known. Case M6.
TEST(ZeroElements, OutputOfSizeZero) {
  NEED("models/onnxruntime-go/example_0_dim_output.onnx");
  std::string path = shared("models/onnxruntime-go/example_0_dim_output.onnx");
  std::vector<NamedTensor> input = {
      {"x", realTensor({2, 8}, std::vector<double>(16, 0.0))}};
  auto open = runModel(path, input, {});
  EXPECT_NE(open.error.find("depends on data"), std::string::npos) << open.error;
  ImportOptions options;
  options.values["x"] = input[0].tensor.reals;
  auto run = runModel(path, input, options);
  ASSERT_EQ(run.error, "");
  EXPECT_EQ(run.outputs[0].tensor.shape, (std::vector<int64_t>{2, 0, 8}));
}

} // namespace
} // namespace sluice::test
