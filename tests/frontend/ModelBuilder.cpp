#include "tests/frontend/ModelBuilder.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

namespace sluice::test {

std::string scratchFolder() {
  static const std::string folder = [] {
    std::string path =
        testing::TempDir() + "sluice-frontend-" + std::to_string(::getpid());
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
    return path;
  }();
  return folder;
}

ModelBuilder::ModelBuilder(int opset, int irVersion) {
  model.set_ir_version(irVersion);
  model.add_opset_import()->set_version(opset);
  model.mutable_graph()->set_name("test");
}

ModelBuilder &ModelBuilder::input(const std::string &name, const std::vector<Dim> &dims,
                                  int type) {
  auto *info = model.mutable_graph()->add_input();
  info->set_name(name);
  auto *tensor = info->mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(type);
  tensor->mutable_shape();
  for (const Dim &dim : dims) {
    auto *added = tensor->mutable_shape()->add_dim();
    if (auto *size = std::get_if<int>(&dim))
      added->set_dim_value(*size);
    else
      added->set_dim_param(std::get<std::string>(dim));
  }
  return *this;
}

ModelBuilder &ModelBuilder::output(const std::string &name) {
  auto *info = model.mutable_graph()->add_output();
  info->set_name(name);
  info->mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::FLOAT);
  return *this;
}

onnx::TensorProto &ModelBuilder::weight(const std::string &name,
                                        const std::vector<int64_t> &dims,
                                        std::vector<float> values) {
  auto *tensor = model.mutable_graph()->add_initializer();
  tensor->set_name(name);
  tensor->set_data_type(onnx::TensorProto::FLOAT);
  size_t count = 1;
  for (int64_t dim : dims) {
    tensor->add_dims(dim);
    count *= dim;
  }
  while (values.size() < count)
    values.push_back(0.1f * float(values.size() + 1));
  tensor->set_raw_data(values.data(), count * sizeof(float));
  return *tensor;
}

onnx::TensorProto &ModelBuilder::integers(const std::string &name,
                                          const std::vector<int64_t> &values) {
  auto *tensor = model.mutable_graph()->add_initializer();
  tensor->set_name(name);
  tensor->set_data_type(onnx::TensorProto::INT64);
  tensor->add_dims(values.size());
  for (int64_t value : values)
    tensor->add_int64_data(value);
  return *tensor;
}

onnx::NodeProto &ModelBuilder::node(const std::string &op,
                                    const std::vector<std::string> &inputs,
                                    const std::vector<std::string> &outputs) {
  auto *added = model.mutable_graph()->add_node();
  added->set_op_type(op);
  for (const std::string &name : inputs)
    added->add_input(name);
  for (const std::string &name : outputs)
    added->add_output(name);
  return *added;
}

std::string ModelBuilder::save(const std::string &name) const {
  std::string path = scratchFolder() + "/" + name;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream file(path, std::ios::binary);
  model.SerializeToOstream(&file);
  return path;
}

static onnx::AttributeProto &attribute(onnx::NodeProto &node, const std::string &name) {
  auto *added = node.add_attribute();
  added->set_name(name);
  return *added;
}
onnx::AttributeProto &set(onnx::NodeProto &node, const std::string &name, int64_t value) {
  auto &added = attribute(node, name);
  added.set_type(onnx::AttributeProto::INT);
  added.set_i(value);
  return added;
}
onnx::AttributeProto &set(onnx::NodeProto &node, const std::string &name,
                          const std::vector<int64_t> &values) {
  auto &added = attribute(node, name);
  added.set_type(onnx::AttributeProto::INTS);
  for (int64_t value : values)
    added.add_ints(value);
  return added;
}
onnx::AttributeProto &set(onnx::NodeProto &node, const std::string &name, double value) {
  auto &added = attribute(node, name);
  added.set_type(onnx::AttributeProto::FLOAT);
  added.set_f(static_cast<float>(value));
  return added;
}
onnx::AttributeProto &set(onnx::NodeProto &node, const std::string &name,
                          const std::string &value) {
  auto &added = attribute(node, name);
  added.set_type(onnx::AttributeProto::STRING);
  added.set_s(value);
  return added;
}

} // namespace sluice::test
