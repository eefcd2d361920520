// Runs the test vectors of libonnx-testdata through the importer and the interpreter and
// compares the outputs. Prints how many are in scope and pass, and why the others do not.
//   onnx-vectors DATA_FOLDER [--passes FILE] [--write FILE] [--only NAME]
// --passes: fails if a vector of the list does not pass any more.
#include "frontend/onnx/OnnxProto.h"
#include "tests/frontend/ModelRunner.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <set>

using namespace sluice;
using namespace sluice::test;
namespace fs = std::filesystem;

namespace {

struct Outcome {
  bool inScope = true, passed = false;
  std::string reason;
};

bool isNumeric(const onnx::ValueInfoProto &info) {
  return info.type().has_tensor_type() &&
         info.type().tensor_type().elem_type() != onnx::TensorProto::STRING;
}

/// Dense tensors of numbers, and no optimizer or gradient operator.
std::string outOfScope(const onnx::ModelProto &model) {
  for (const auto &node : model.graph().node()) {
    if (node.domain() == "ai.onnx.preview.training")
      return "optimizer or gradient operator " + node.op_type();
    for (const char *word : {"Sequence", "Optional"})
      if (node.op_type().find(word) != std::string::npos &&
          node.op_type() != "ReverseSequence")
        return "sequences or optionals";
  }
  for (const auto &info : model.graph().input())
    if (!isNumeric(info))
      return "operand that is no tensor of numbers";
  for (const auto &info : model.graph().output())
    if (!isNumeric(info))
      return "result that is no tensor of numbers";
  return "";
}

struct Vector {
  std::vector<NamedTensor> inputs, outputs;
};
/// Old vectors hold bfloat16 as the bits of uint16.
void decodeBfloat(const onnx::ValueInfoProto &info, graph::HostTensor &tensor) {
  if (info.type().tensor_type().elem_type() != onnx::TensorProto::BFLOAT16 ||
      tensor.isReal())
    return;
  for (int64_t bits : tensor.integers) {
    uint32_t word = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &word, sizeof value);
    tensor.reals.push_back(value);
  }
  tensor.integers.clear();
  tensor.elementType = mlir::BFloat16Type::get(&test::context());
}

bool readVector(const fs::path &folder, const onnx::GraphProto &graph, Vector &vector) {
  std::set<std::string> initializers;
  for (const auto &tensor : graph.initializer())
    initializers.insert(tensor.name());
  int index = 0;
  for (const auto &input : graph.input()) {
    fs::path file = folder / ("input_" + std::to_string(index) + ".pb");
    if (!fs::exists(file))
      return initializers.count(input.name()) > 0 || index > 0;
    std::string name;
    auto tensor = readTensor(file.string(), name);
    if (!tensor.elementType)
      return false;
    decodeBfloat(input, tensor);
    vector.inputs.push_back({input.name(), tensor});
    ++index;
  }
  return true;
}

/// Models in double precision are run in it.
graph::Precision precisionOf(const Vector &vector) {
  for (const NamedTensor &input : vector.inputs)
    if (input.tensor.elementType.isF64())
      return graph::Precision::Double;
  return graph::Precision::Single;
}

void fixValues(const Vector &vector, bool reals, ImportOptions &options) {
  for (const NamedTensor &input : vector.inputs)
    if (reals || !input.tensor.isReal())
      options.values[input.name] = numbers(input.tensor);
}

Outcome check(const fs::path &folder) {
  Outcome outcome;
  onnx::ModelProto model;
  std::ifstream file(folder / "model.onnx", std::ios::binary);
  if (!model.ParseFromIstream(&file))
    return {true, false, "the model cannot be read"};
  if (outcome.reason = outOfScope(model); !outcome.reason.empty())
    return outcome.inScope = false, outcome;
  for (int set = 0; fs::exists(folder / ("test_data_set_" + std::to_string(set)));
       ++set) {
    fs::path data = folder / ("test_data_set_" + std::to_string(set));
    Vector vector;
    if (!readVector(data, model.graph(), vector))
      return {true, false, "the inputs cannot be read"};
    // Shapes, axes and lengths that are inputs here are constants of real models.
    RunResult run;
    for (int attempt = 0; attempt < 3; ++attempt) {
      ImportOptions options;
      if (attempt > 0)
        fixValues(vector, attempt == 2, options);
      run = runModel((folder / "model.onnx").string(), vector.inputs, options,
                     precisionOf(vector));
      if (run.error.empty())
        break;
    }
    if (!run.error.empty())
      return {true, false, run.error};
    for (size_t i = 0; i < run.outputs.size(); ++i) {
      std::string name;
      auto expected =
          readTensor((data / ("output_" + std::to_string(i) + ".pb")).string(), name);
      if (!expected.elementType)
        return {true, false, "the expected output cannot be read"};
      decodeBfloat(model.graph().output(i), expected);
      std::string difference = compare(run.outputs[i].tensor, expected, 1e-3, 1e-6);
      if (!difference.empty())
        return {true, false, "output " + std::to_string(i) + ": " + difference};
    }
    outcome.passed = true;
  }
  if (!outcome.passed)
    outcome.reason = "has no data";
  return outcome;
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 2 || !fs::is_directory(argv[1])) {
    std::cout << "SKIPPED: no test vectors (package libonnx-testdata)\n";
    return 77;
  }
  std::string passes, write, only;
  for (int i = 2; i + 1 < argc; i += 2) {
    if (!std::strcmp(argv[i], "--passes"))
      passes = argv[i + 1];
    if (!std::strcmp(argv[i], "--write"))
      write = argv[i + 1];
    if (!std::strcmp(argv[i], "--only"))
      only = argv[i + 1];
  }
  std::map<std::string, Outcome> outcomes;
  for (const char *group : {"node", "simple", "pytorch-operator", "pytorch-converted"})
    for (const auto &entry : fs::directory_iterator(fs::path(argv[1]) / group)) {
      std::string name = std::string(group) + "/" + entry.path().filename().string();
      if (only.empty() || name.find(only) != std::string::npos)
        outcomes[name] = check(entry.path());
    }
  size_t inScope = 0, passed = 0;
  std::ofstream list(write);
  for (auto &[name, outcome] : outcomes) {
    inScope += outcome.inScope;
    passed += outcome.passed;
    if (outcome.passed)
      list << name << "\n";
    else
      std::cout << (outcome.inScope ? "FAIL  " : "OUT   ") << name << ": "
                << outcome.reason << "\n";
  }
  std::cout << outcomes.size() << " vectors, " << inScope << " in scope, " << passed
            << " pass\n";
  int lost = 0;
  std::ifstream wanted(passes);
  for (std::string name; std::getline(wanted, name);)
    if (!outcomes[name].passed) {
      std::cout << "LOST  " << name << ": " << outcomes[name].reason << "\n";
      ++lost;
    }
  return lost ? 1 : 0;
}
