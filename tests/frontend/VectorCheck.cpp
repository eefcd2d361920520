// The forward values of a test vector.
#include "tests/frontend/VectorCheck.h"

#include "frontend/onnx/TensorData.h"

#include <unistd.h>

namespace sluice::test {

namespace fs = std::filesystem;

namespace {

bool isNumeric(const onnx::ValueInfoProto &info) {
  int32_t type = info.type().tensor_type().elem_type();
  return info.type().has_tensor_type() &&
         frontend::elementType(&test::context(), type) != nullptr;
}

/// Dense tensors of numbers, and no optimizer or gradient operator.
std::string outOfScope(const onnx::ModelProto &model) {
  for (const auto &node : model.graph().node()) {
    if (node.domain() == "ai.onnx.preview.training")
      return "optimizer or gradient operator " + node.op_type();
    if (node.op_type().find("Optional") != std::string::npos)
      return "optionals";
  }
  for (const auto &info : model.graph().input())
    if (!isNumeric(info))
      return "operand that is no tensor of numbers";
  for (const auto &info : model.graph().output())
    if (!isNumeric(info))
      return "result that is no tensor of numbers";
  return "";
}

/// Models in double precision are run in it.
graph::Precision precisionOf(const VectorSet &vector) {
  for (const NamedTensor &input : vector.inputs)
    if (input.tensor.elementType.isF64())
      return graph::Precision::Double;
  return graph::Precision::Single;
}

} // namespace

void fixValues(const VectorSet &vector, int attempt, ImportOptions &options) {
  for (const NamedTensor &input : vector.inputs)
    if (attempt == 2 || (attempt == 1 && !input.tensor.isReal()))
      options.values[input.name] = numbers(input.tensor);
}

namespace {
/// A folder of this process; tests run side by side.
struct Scratch {
  Scratch()
      : folder(fs::temp_directory_path() /
               ("sluice-vectors" + std::to_string(getpid()))) {
    fs::create_directories(folder);
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
  fs::path folder;
};
} // namespace

VectorOutcome checkVector(const VectorCase &test) {
  VectorOutcome outcome;
  if (!test.error.empty())
    return {true, false, test.error};
  if (outcome.reason = outOfScope(test.model); !outcome.reason.empty())
    return outcome.inScope = false, outcome;
  for (const VectorSet &vector : test.sets) {
    if (!vector.error.empty())
      return {true, false, vector.error};
    // Shapes, axes and lengths that are inputs here are constants of real models.
    RunResult run;
    for (int attempt = 0; attempt < 3; ++attempt) {
      ImportOptions options;
      fixValues(vector, attempt, options);
      run = runModel(test.path, vector.inputs, options, precisionOf(vector));
      if (run.error.empty())
        break;
      if (attempt == 0 || outcome.reason.empty())
        outcome.reason = run.error;
    }
    if (!run.error.empty())
      return outcome;
    for (size_t i = 0; i < run.outputs.size(); ++i) {
      std::string difference =
          compare(run.outputs[i].tensor, vector.outputs[i], 1e-3, 1e-6);
      if (!difference.empty())
        return {true, false, "output " + std::to_string(i) + ": " + difference};
    }
    outcome.passed = true;
  }
  if (!outcome.passed)
    outcome.reason = "has no data";
  return outcome;
}

std::vector<VectorCase> readCases(const fs::path &data, const std::string &only) {
  std::vector<VectorCase> cases;
  if (!fs::is_directory(data)) {
    static const Scratch scratch;
    for (VectorCase &next : readVectorFile(data, scratch.folder))
      if (next.name.find(only) != std::string::npos)
        cases.push_back(std::move(next));
    return cases;
  }
  for (const char *group : {"node", "simple", "pytorch-operator", "pytorch-converted"})
    for (const auto &entry : fs::directory_iterator(data / group)) {
      std::string name = std::string(group) + "/" + entry.path().filename().string();
      if (name.find(only) != std::string::npos)
        cases.push_back(readVectorFolder(entry.path(), name));
    }
  return cases;
}

} // namespace sluice::test
