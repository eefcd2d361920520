#include "tests/frontend/VectorCases.h"
#include "frontend/onnx/TensorData.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/util/delimited_message_util.h>
#include <set>

namespace sluice::test {

namespace fs = std::filesystem;

namespace {

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

VectorSet readSet(const fs::path &folder, const onnx::GraphProto &graph) {
  VectorSet set;
  std::set<std::string> initializers;
  for (const auto &tensor : graph.initializer())
    initializers.insert(tensor.name());
  std::string name;
  for (const auto &input : graph.input()) {
    fs::path file = folder / ("input_" + std::to_string(set.inputs.size()) + ".pb");
    if (!fs::exists(file)) {
      if (initializers.count(input.name()) == 0 && set.inputs.empty())
        set.error = "the inputs cannot be read";
      break;
    }
    auto tensor = readTensor(file.string(), name);
    if (!tensor.elementType)
      return set.error = "the inputs cannot be read", set;
    decodeBfloat(input, tensor);
    set.inputs.push_back({input.name(), tensor});
  }
  for (const auto &output : graph.output()) {
    auto number = std::to_string(set.outputs.size());
    auto tensor = readTensor((folder / ("output_" + number + ".pb")).string(), name);
    if (!tensor.elementType)
      return set.error = "the expected output cannot be read", set;
    decodeBfloat(output, tensor);
    set.outputs.push_back(tensor);
  }
  return set;
}

VectorSet setOf(onnx::GraphProto &data, const onnx::GraphProto &graph) {
  VectorSet set;
  frontend::TensorReader reader(&test::context(), "");
  for (int i = 0; i < data.initializer_size(); ++i) {
    std::string name = data.initializer(i).name();
    auto tensor = reader.host(*data.mutable_initializer(i), set.error);
    if (!tensor)
      return set;
    if (i < graph.input_size())
      set.inputs.push_back({name, *tensor});
    else
      set.outputs.push_back(*tensor);
  }
  return set;
}

} // namespace

VectorCase readVectorFolder(const fs::path &folder, const std::string &name) {
  VectorCase result;
  result.name = name;
  result.path = (folder / "model.onnx").string();
  std::ifstream file(result.path, std::ios::binary);
  if (!result.model.ParseFromIstream(&file))
    return result.error = "the model cannot be read", result;
  for (int set = 0; fs::exists(folder / ("test_data_set_" + std::to_string(set))); ++set)
    result.sets.push_back(
        readSet(folder / ("test_data_set_" + std::to_string(set)), result.model.graph()));
  return result;
}

std::vector<VectorCase> readVectorFile(const fs::path &file, const fs::path &scratch) {
  std::vector<VectorCase> cases;
  std::ifstream bytes(file, std::ios::binary);
  google::protobuf::io::IstreamInputStream stream(&bytes);
  for (bool end = false;;) {
    VectorCase next;
    onnx::GraphProto data;
    using google::protobuf::util::ParseDelimitedFromZeroCopyStream;
    if (!ParseDelimitedFromZeroCopyStream(&next.model, &stream, &end) ||
        !ParseDelimitedFromZeroCopyStream(&data, &stream, &end))
      break;
    next.name = data.name();
    std::string file = next.name;
    std::replace(file.begin(), file.end(), '/', '_');
    next.path = (scratch / (file + ".onnx")).string();
    std::ofstream model(next.path, std::ios::binary);
    next.model.SerializeToOstream(&model);
    next.sets.push_back(setOf(data, next.model.graph()));
    cases.push_back(std::move(next));
  }
  return cases;
}

} // namespace sluice::test
