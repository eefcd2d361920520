#pragma once
// Test vectors: a model, operands and the results to expect.

#include "frontend/onnx/OnnxProto.h"
#include "tests/frontend/ModelRunner.h"

#include <filesystem>

namespace sluice::test {

struct VectorSet {
  std::vector<NamedTensor> inputs;
  std::vector<graph::HostTensor> outputs;
  std::string error; // not empty: it cannot be read
};

struct VectorCase {
  std::string name, path; // of the model's file
  onnx::ModelProto model;
  std::vector<VectorSet> sets;
  std::string error;
};

/// A folder of libonnx-testdata: model.onnx and test_data_set_0, ...
VectorCase readVectorFolder(const std::filesystem::path &folder, const std::string &name);
/// All cases of a file that record_vectors.py wrote; models go to files in `scratch`.
std::vector<VectorCase> readVectorFile(const std::filesystem::path &file,
                                       const std::filesystem::path &scratch);

} // namespace sluice::test
