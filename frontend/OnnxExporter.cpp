#include "frontend/OnnxExporter.h"
#include "frontend/onnx/Limits.h"
#include "frontend/onnx/ModelFile.h"

#include "llvm/ADT/APFloat.h"

#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <set>
#include <unistd.h>

namespace sluice {

using namespace sluice::frontend;
using onnx::TensorProto;

namespace {

/// Bytes of one element as stored; 0 for types without raw data.
int64_t elementBytes(int32_t type) {
  switch (type) {
  case TensorProto::DOUBLE:
  case TensorProto::INT64:
  case TensorProto::UINT64:
    return 8;
  case TensorProto::FLOAT:
  case TensorProto::INT32:
  case TensorProto::UINT32:
    return 4;
  case TensorProto::FLOAT16:
  case TensorProto::BFLOAT16:
  case TensorProto::INT16:
  case TensorProto::UINT16:
    return 2;
  case TensorProto::INT8:
  case TensorProto::UINT8:
  case TensorProto::BOOL:
    return 1;
  default:
    return 0;
  }
}
int64_t tensorBytes(const TensorProto &tensor) {
  int64_t size = elementBytes(tensor.data_type());
  for (int64_t dim : tensor.dims())
    if (dim < 0 || __builtin_mul_overflow(size, dim, &size))
      return -1;
  return size;
}

void clearData(TensorProto &tensor) {
  tensor.clear_float_data();
  tensor.clear_int32_data();
  tensor.clear_int64_data();
  tensor.clear_double_data();
  tensor.clear_uint64_data();
  tensor.clear_external_data();
  tensor.clear_data_location();
}

/// The 16-bit type of a tensor; null for others.
const llvm::fltSemantics *narrowType(const TensorProto &tensor) {
  if (tensor.data_type() == TensorProto::FLOAT16)
    return &llvm::APFloat::IEEEhalf();
  if (tensor.data_type() == TensorProto::BFLOAT16)
    return &llvm::APFloat::BFloat();
  return nullptr;
}

std::string roundTo(const llvm::fltSemantics &narrow, const TensorBytes &values) {
  std::string result;
  for (size_t at = 0; at + sizeof(float) <= values.size; at += sizeof(float)) {
    float value;
    std::memcpy(&value, values.data + at, sizeof value);
    llvm::APFloat number(value);
    bool loses = false;
    number.convert(narrow, llvm::APFloat::rmNearestTiesToEven, &loses);
    uint16_t bits = static_cast<uint16_t>(number.bitcastToAPInt().getZExtValue());
    result.append(reinterpret_cast<const char *>(&bits), sizeof bits);
  }
  return result;
}

class Exporter {
public:
  Exporter(ModelFile &file, const std::map<std::string, TensorBytes> &weights)
      : file(file), weights(weights), external(file.folder) {}

  std::optional<std::string> run() {
    storeInputs(*file.proto->mutable_graph());
    visit(*file.proto->mutable_graph(), "", 0);
    if (!error.empty())
      return error;
    for (auto &[name, bytes] : weights)
      if (!used.count(name))
        return "the model has no weight '" + name + "'";
    return std::nullopt;
  }

private:
  /// The key of a tensor: its name, or with the path of its subgraph where names clash.
  const TensorBytes *find(const std::string &path, const std::string &name) {
    for (const std::string &key : {path + name, name}) {
      auto found = weights.find(key);
      if (found != weights.end()) {
        used.insert(key);
        return &found->second;
      }
    }
    return nullptr;
  }

  /// Whether all slices along dimension 0 are the same.
  bool holdsCopies(const TensorProto &tensor, int64_t size) {
    Bytes bytes;
    if (tensor.data_location() == TensorProto::EXTERNAL) {
      if (external.find(tensor, size, bytes))
        return false;
    } else if (tensor.has_raw_data()) {
      bytes = {tensor.raw_data().data(), tensor.raw_data().size(), nullptr};
    } else {
      const auto &values = tensor.float_data();
      bytes = {reinterpret_cast<const char *>(values.data()),
               values.size() * sizeof(float), nullptr};
    }
    if (static_cast<int64_t>(bytes.size) != size)
      return false;
    size_t slice = bytes.size / size_t(tensor.dims(0));
    return std::memcmp(bytes.data, bytes.data + slice, bytes.size - slice) == 0;
  }

  void store(TensorProto &tensor, const TensorBytes &bytes) {
    std::string rounded;
    if (const llvm::fltSemantics *narrow = narrowType(tensor); narrow && bytes.isF32) {
      rounded = roundTo(*narrow, bytes);
      return storeBytes(tensor, {rounded.data(), rounded.size()});
    }
    storeBytes(tensor, bytes);
  }

  void storeBytes(TensorProto &tensor, const TensorBytes &bytes) {
    int64_t expected = tensorBytes(tensor);
    int64_t copies = tensor.dims_size() > 0 ? tensor.dims(0) : 1;
    bool isSlice = copies > 1 && expected == copies * static_cast<int64_t>(bytes.size);
    if (isSlice && holdsCopies(tensor, expected)) { // `tie: [[a, "a@copies"]]`
      std::string repeated;
      for (int64_t i = 0; i < copies; ++i)
        repeated.append(static_cast<const char *>(bytes.data), bytes.size);
      clearData(tensor);
      tensor.set_raw_data(std::move(repeated));
      written += expected;
      return;
    }
    if (expected != static_cast<int64_t>(bytes.size)) {
      error = "weight '" + tensor.name() + "' has " + std::to_string(bytes.size) +
              " bytes, the model's has " + std::to_string(expected);
      return;
    }
    clearData(tensor);
    tensor.set_raw_data(bytes.data, bytes.size);
    written += expected;
  }

  /// External data moves into the file.
  void inlineData(TensorProto &tensor) {
    if (tensor.data_location() != TensorProto::EXTERNAL)
      return;
    Bytes bytes;
    int64_t expected = tensorBytes(tensor);
    if (expected < 0)
      error = "tensor '" + tensor.name() + "' has no valid shape";
    else if (auto problem = external.find(tensor, expected, bytes))
      error = "tensor '" + tensor.name() + "': " + *problem;
    else if ((written += expected) < int64_t(1) << 31) {
      clearData(tensor);
      tensor.set_raw_data(bytes.data, bytes.size);
    }
  }

  /// A weight that the importer has taken out of a Constant node (`promote`).
  void storeConstant(const std::string &path, onnx::NodeProto &node) {
    for (auto &attribute : *node.mutable_attribute()) {
      if (attribute.name() != "value" || !attribute.has_t())
        continue;
      if (const TensorBytes *bytes = find(path, node.output(0)))
        store(*attribute.mutable_t(), *bytes);
    }
  }

  /// Weights that the model took as inputs become initializers.
  void storeInputs(onnx::GraphProto &graph) {
    std::set<std::string> initializers;
    for (const TensorProto &tensor : graph.initializer())
      initializers.insert(tensor.name());
    google::protobuf::RepeatedPtrField<onnx::ValueInfoProto> kept;
    for (onnx::ValueInfoProto &input : *graph.mutable_input()) {
      const TensorBytes *bytes =
          initializers.count(input.name()) ? nullptr : find("", input.name());
      if (!bytes) {
        kept.Add()->Swap(&input);
        continue;
      }
      TensorProto tensor;
      tensor.set_name(input.name());
      tensor.set_data_type(input.type().tensor_type().elem_type());
      for (const auto &dim : input.type().tensor_type().shape().dim())
        tensor.add_dims(dim.dim_value());
      store(tensor, *bytes);
      graph.add_initializer()->Swap(&tensor);
      if (file.proto->ir_version() < 4) // initializers are inputs too
        kept.Add()->Swap(&input);
    }
    graph.mutable_input()->Swap(&kept);
  }

  void visit(onnx::GraphProto &graph, const std::string &path, int depth) {
    if (depth > maxNesting)
      return;
    for (TensorProto &tensor : *graph.mutable_initializer()) {
      if (const TensorBytes *bytes = find(path, tensor.name()))
        store(tensor, *bytes);
      else
        inlineData(tensor);
    }
    for (onnx::NodeProto &node : *graph.mutable_node())
      if (node.op_type() == "Constant" && node.output_size() == 1)
        storeConstant(path, node);
    google::protobuf::RepeatedPtrField<onnx::NodeProto> kept;
    for (onnx::NodeProto &node : *graph.mutable_node()) {
      bool generated = node.op_type() == "ConstantOfShape" && node.output_size() == 1;
      const TensorBytes *bytes = generated ? find(path, node.output(0)) : nullptr;
      if (bytes) {
        addInitializer(graph, node, *bytes);
        continue;
      }
      for (auto &attribute : *node.mutable_attribute())
        if (attribute.has_g())
          visit(*attribute.mutable_g(), path + node.name() + "/", depth + 1);
      kept.Add()->Swap(&node);
    }
    graph.mutable_node()->Swap(&kept);
  }

  /// The shape a ConstantOfShape node reads; nothing if it is no initializer.
  std::optional<std::vector<int64_t>> shapeOperand(const onnx::GraphProto &graph,
                                                   const onnx::NodeProto &node) {
    for (const TensorProto &tensor : graph.initializer()) {
      if (node.input_size() < 1 || tensor.name() != node.input(0))
        continue;
      std::vector<int64_t> shape(tensor.int64_data().begin(), tensor.int64_data().end());
      if (tensor.has_raw_data()) {
        shape.resize(tensor.raw_data().size() / sizeof(int64_t));
        std::memcpy(shape.data(), tensor.raw_data().data(),
                    shape.size() * sizeof(int64_t));
      }
      return shape;
    }
    return std::nullopt;
  }

  void addInitializer(onnx::GraphProto &graph, const onnx::NodeProto &node,
                      const TensorBytes &bytes) {
    auto shape = shapeOperand(graph, node);
    TensorProto tensor;
    tensor.set_name(node.output(0));
    tensor.set_data_type(TensorProto::FLOAT);
    for (const auto &attribute : node.attribute())
      if (attribute.has_t())
        tensor.set_data_type(attribute.t().data_type());
    if (shape)
      tensor.mutable_dims()->Assign(shape->begin(), shape->end());
    if (!shape) {
      error = "the shape of weight '" + node.output(0) + "' is computed by the model";
      return;
    }
    store(tensor, bytes);
    if (file.proto->ir_version() < 4) { // initializers are inputs too
      auto *input = graph.add_input();
      input->set_name(tensor.name());
      auto *type = input->mutable_type()->mutable_tensor_type();
      type->set_elem_type(tensor.data_type());
      for (int64_t dim : tensor.dims())
        type->mutable_shape()->add_dim()->set_dim_value(dim);
    }
    graph.add_initializer()->Swap(&tensor);
  }

  ModelFile &file;
  const std::map<std::string, TensorBytes> &weights;
  ExternalFiles external;
  std::set<std::string> used;
  std::string error;
  int64_t written = 0;
};

/// Temporary file, fsync, rename.
std::optional<std::string> writeAtomically(const onnx::ModelProto &proto,
                                           const std::string &path) {
  std::string temporary = path + ".tmp" + std::to_string(::getpid());
  auto problem = [&](const std::string &what) {
    std::string text = "'" + path + "' cannot be " + what + ": " + std::strerror(errno);
    ::unlink(temporary.c_str());
    return text;
  };
  int descriptor =
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0)
    return problem("created");
  errno = 0;
  bool ok = proto.SerializeToFileDescriptor(descriptor) && ::fsync(descriptor) == 0;
  int code = errno;
  ::close(descriptor);
  errno = code;
  if (!ok)
    return problem("written");
  if (::rename(temporary.c_str(), path.c_str()) != 0)
    return problem("put in place");
  std::string folder = std::filesystem::path(path).parent_path().string();
  int directory = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_CLOEXEC);
  if (directory >= 0) {
    ::fsync(directory);
    ::close(directory);
  }
  return std::nullopt;
}

} // namespace

std::optional<std::string> exportOnnx(const std::string &modelPath,
                                      const std::map<std::string, TensorBytes> &weights,
                                      const std::string &outPath) {
  ModelFile file;
  if (auto problem = readModelFile(modelPath, file))
    return problem;
  if (auto problem = Exporter(file, weights).run())
    return problem;
  if (file.proto->ByteSizeLong() >= size_t(1) << 31)
    return "'" + outPath + "' would pass 2 GiB, more than an ONNX file holds";
  return writeAtomically(*file.proto, outPath);
}

} // namespace sluice
