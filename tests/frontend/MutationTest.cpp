// Damaged files are refused or imported, never a crash, a hang or memory without bound.
// Most mutations of raw bytes end in the parser, so others change numbers inside a parsed
// model. More of them: --gtest_shuffle --gtest_repeat=N, 6,000 each time.
#include "tests/frontend/ModelBuilder.h"
#include "tests/frontend/ModelRunner.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <random>

namespace sluice::test {

namespace {

namespace fs = std::filesystem;

std::vector<std::string> seeds() {
  std::vector<std::string> paths;
  for (const char *root :
       {"/usr/share/libonnx-testdata/data/node", SLUICE_SHARED "/models/burn-onnx"}) {
    if (!fs::is_directory(root))
      continue;
    for (const auto &entry : fs::recursive_directory_iterator(root))
      if (entry.path().extension() == ".onnx" && entry.file_size() < 20000)
        paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string contents(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void importBytes(const std::string &bytes) {
  std::string path = scratchFolder() + "/mutant.onnx";
  std::ofstream(path, std::ios::binary) << bytes;
  ImportReport report;
  ImportOptions options;
  auto module = importOnnx(context(), path, options, report);
  EXPECT_EQ(succeeded(module), report.problems().empty());
}

int64_t oddNumber(std::mt19937 &random) {
  static const int64_t numbers[] = {0,
                                    1,
                                    -1,
                                    2,
                                    -2,
                                    3,
                                    7,
                                    64,
                                    1000,
                                    -1000,
                                    1 << 20,
                                    int64_t(1) << 31,
                                    int64_t(1) << 40,
                                    INT64_MAX,
                                    INT64_MIN};
  return numbers[random() % std::size(numbers)];
}

/// Changes one number, name or operand of a graph.
void mutate(onnx::GraphProto &graph, std::mt19937 &random) {
  auto pick = [&](int size) { return static_cast<int>(random() % std::max(size, 1)); };
  int what = pick(6);
  if (what == 0 && graph.initializer_size() > 0) {
    auto *tensor = graph.mutable_initializer(pick(graph.initializer_size()));
    if (tensor->dims_size() > 0)
      tensor->set_dims(pick(tensor->dims_size()), oddNumber(random));
    if (tensor->int64_data_size() > 0)
      tensor->set_int64_data(pick(tensor->int64_data_size()), oddNumber(random));
    return;
  }
  if (what == 1 && graph.input_size() > 0) {
    auto *type = graph.mutable_input(pick(graph.input_size()))->mutable_type();
    auto *shape = type->mutable_tensor_type()->mutable_shape();
    if (shape->dim_size() > 0)
      shape->mutable_dim(pick(shape->dim_size()))
          ->set_dim_value(oddNumber(random) % 4096);
    return;
  }
  if (graph.node_size() == 0)
    return;
  auto *node = graph.mutable_node(pick(graph.node_size()));
  if (what == 2 && node->input_size() > 0)
    return node->set_input(
        pick(node->input_size()),
        graph.input_size() ? graph.input(pick(graph.input_size())).name() : "");
  if (what == 3)
    return node->mutable_input()->DeleteSubrange(0, pick(node->input_size() + 1));
  if (what == 4) {
    static const char *ops[] = {"Reshape", "Conv",      "Gather",  "Slice", "LSTM",
                                "Resize",  "Loop",      "MaxPool", "Gemm",  "Einsum",
                                "Pad",     "ScatterND", "TopK",    "Split"};
    return node->set_op_type(ops[pick(std::size(ops))]);
  }
  for (auto &attribute : *node->mutable_attribute()) {
    if (attribute.has_i())
      attribute.set_i(oddNumber(random));
    if (attribute.ints_size() > 0)
      attribute.set_ints(pick(attribute.ints_size()), oddNumber(random));
    if (attribute.has_g())
      mutate(*attribute.mutable_g(), random);
  }
}

TEST(Mutation, ChangedNumbersNamesAndOperands) {
  auto paths = seeds();
  if (paths.empty())
    GTEST_SKIP() << "no models to start from (package libonnx-testdata)";
  std::mt19937 random(1 + testing::UnitTest::GetInstance()->random_seed());
  for (int i = 0; i < 3000; ++i) {
    onnx::ModelProto model;
    ASSERT_TRUE(model.ParseFromString(contents(paths[i % paths.size()])));
    for (int k = 0, count = 1 + int(random() % 3); k < count; ++k)
      mutate(*model.mutable_graph(), random);
    importBytes(model.SerializeAsString());
  }
}

TEST(Mutation, FlippedAndCutBytes) {
  auto paths = seeds();
  if (paths.empty())
    GTEST_SKIP() << "no models to start from (package libonnx-testdata)";
  std::mt19937 random(2 + testing::UnitTest::GetInstance()->random_seed());
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = contents(paths[i % paths.size()]);
    for (int k = 0, count = 1 + int(random() % 4); k < count && !bytes.empty(); ++k)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 4 == 0)
      bytes.resize(random() % (bytes.size() + 1));
    importBytes(bytes);
  }
}

} // namespace
} // namespace sluice::test
