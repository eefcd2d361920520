#pragma once
// Writes small ONNX models for tests.

#include "frontend/onnx/OnnxProto.h"

#include <string>
#include <variant>
#include <vector>

namespace sluice::test {

using Dim = std::variant<int, std::string>; // a size or a symbol

class ModelBuilder {
public:
  explicit ModelBuilder(int opset = 17, int irVersion = 8);
  ModelBuilder &input(const std::string &name, const std::vector<Dim> &dims,
                      int type = onnx::TensorProto::FLOAT);
  ModelBuilder &output(const std::string &name);
  /// Elements 0.1, 0.2, ... unless given.
  onnx::TensorProto &weight(const std::string &name, const std::vector<int64_t> &dims,
                            std::vector<float> values = {});
  onnx::TensorProto &integers(const std::string &name,
                              const std::vector<int64_t> &values);
  onnx::NodeProto &node(const std::string &op, const std::vector<std::string> &inputs,
                        const std::vector<std::string> &outputs);
  /// Path of the file.
  std::string save(const std::string &name = "model.onnx") const;

  onnx::ModelProto model;
};

onnx::AttributeProto &set(onnx::NodeProto &node, const std::string &name, int64_t value);
onnx::AttributeProto &set(onnx::NodeProto &node, const std::string &name,
                          const std::vector<int64_t> &values);
onnx::AttributeProto &set(onnx::NodeProto &node, const std::string &name, double value);
onnx::AttributeProto &set(onnx::NodeProto &node, const std::string &name,
                          const std::string &value);

/// A folder of this test run, empty at its start.
std::string scratchFolder();

} // namespace sluice::test
