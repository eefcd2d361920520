#include "frontend/onnx/InputParameters.h"

#include "frontend/onnx/Limits.h"
#include "frontend/ort_checkpoint_generated.h"

#include "llvm/Support/GlobPattern.h"
#include "llvm/Support/MemoryBuffer.h"

#include <filesystem>
#include <map>

namespace sluice::frontend {

namespace {

/// A checkpoint of ONNX Runtime's training tools.
class OrtCheckpoint {
public:
  /// Reads FOLDER/checkpoint; nothing is there where that is no such file.
  OrtCheckpoint(const std::string &folder, ImportReport &report) {
    std::string path = (std::filesystem::path(folder) / "checkpoint").string();
    std::error_code missing;
    if (!std::filesystem::is_regular_file(path, missing))
      return;
    auto read = llvm::MemoryBuffer::getFile(path, /*IsText=*/false,
                                            /*RequiresNullTerminator=*/false);
    if (!read || (*read)->getBufferSize() < 8 ||
        !ort::CheckpointBufferHasIdentifier((*read)->getBufferStart()))
      return;
    bytes = std::move(*read);
    flatbuffers::Verifier verifier(
        reinterpret_cast<const uint8_t *>(bytes->getBufferStart()),
        bytes->getBufferSize());
    if (!ort::VerifyCheckpointBuffer(verifier)) {
      report.errors.push_back("'" + path +
                              "', the ONNX Runtime checkpoint beside the model, is "
                              "damaged; repair it or move it away");
      return;
    }
    const ort::Checkpoint *root = ort::GetCheckpoint(bytes->getBufferStart());
    if (!root->module_state())
      return;
    if (root->module_state()->has_external_data())
      report.notes.push_back("checkpoint: '" + path +
                             "' keeps values in another file, which is not read");
    add(root->module_state()->requires_grad_params(), trained);
    add(root->module_state()->frozen_params(), frozen);
  }

  const ort::Tensor *find(const std::string &name) const {
    auto found = trained.find(name);
    if (found != trained.end())
      return found->second;
    found = frozen.find(name);
    return found == frozen.end() ? nullptr : found->second;
  }

  std::map<std::string, const ort::Tensor *> trained, frozen;

private:
  static void add(const flatbuffers::Vector<flatbuffers::Offset<ort::Tensor>> *tensors,
                  std::map<std::string, const ort::Tensor *> &into) {
    for (flatbuffers::uoffset_t i = 0; tensors && i < tensors->size(); ++i)
      if (const ort::Tensor *tensor = tensors->Get(i); tensor->name())
        into[tensor->name()->str()] = tensor;
  }

  std::unique_ptr<llvm::MemoryBuffer> bytes;
};

class InputParameters {
public:
  InputParameters(ModelFile &file, const ImportOptions &options, ImportReport &report)
      : graph(*file.proto->mutable_graph()), options(options), report(report),
        checkpoint(file.folder, report) {
    for (const auto &tensor : graph.initializer())
      initializers.insert(tensor.name());
  }

  llvm::StringSet<> run() {
    for (const auto &input : graph.input())
      if (!initializers.contains(input.name()))
        visit(input);
    reportCounts();
    return std::move(used);
  }

private:
  bool isNamed(const std::string &name) {
    for (const std::string &pattern : options.promote) {
      auto glob = llvm::GlobPattern::create(pattern);
      if (!glob) {
        llvm::consumeError(glob.takeError());
        continue;
      }
      if (glob->match(name)) {
        used.insert(pattern);
        return true;
      }
    }
    return false;
  }

  void visit(const onnx::ValueInfoProto &input) {
    const ort::Tensor *saved = checkpoint.find(input.name());
    if (!isNamed(input.name()) && !saved)
      return;
    const auto &type = input.type().tensor_type();
    onnx::TensorProto tensor;
    tensor.set_name(input.name());
    tensor.set_data_type(onnx::TensorProto::FLOAT);
    int64_t bytes = sizeof(float);
    bool fixed = type.has_shape();
    for (const auto &dim : type.shape().dim()) {
      fixed &= dim.has_dim_value() && dim.dim_value() >= 0 &&
               !__builtin_mul_overflow(bytes, dim.dim_value(), &bytes);
      tensor.add_dims(dim.dim_value());
    }
    std::string subject = "input '" + input.name() + "', a weight, ";
    if (type.elem_type() != onnx::TensorProto::FLOAT || !fixed)
      return report.errors.push_back(subject + "needs a fixed shape and type f32");
    if (bytes > (int64_t(1) << 31) - 1)
      return report.errors.push_back(subject + "passes 2 GiB");
    if (saved && !fill(*saved, tensor, bytes))
      return report.errors.push_back(
          subject + "has another type or shape in the checkpoint beside the model");
    if (!saved)
      tensor.mutable_raw_data()->resize(bytes), ++zeros;
    else
      ++(checkpoint.frozen.count(input.name()) ? frozen : trained);
    initializers.insert(input.name());
    graph.add_initializer()->Swap(&tensor);
  }

  bool fill(const ort::Tensor &saved, onnx::TensorProto &tensor, int64_t bytes) {
    bool same =
        saved.data_type() == onnx::TensorProto::FLOAT && saved.raw_data() &&
        static_cast<int64_t>(saved.raw_data()->size()) == bytes &&
        static_cast<int>(saved.dims() ? saved.dims()->size() : 0) == tensor.dims_size();
    for (int i = 0; same && i < tensor.dims_size(); ++i)
      same = saved.dims()->Get(i) == tensor.dims(i);
    if (same)
      tensor.set_raw_data(saved.raw_data()->data(), bytes);
    return same;
  }

  void reportCounts() {
    auto count = [](int64_t n) { return std::to_string(n) + " inputs are parameters"; };
    if (trained + frozen > 0)
      report.notes.push_back("checkpoint: " + count(trained + frozen) +
                             " with values from the ONNX Runtime checkpoint beside the "
                             "model; " +
                             std::to_string(frozen) +
                             " of them do not train there, which `frozen` would say; its "
                             "optimizer state is not read");
    if (zeros > 0)
      report.notes.push_back("promote: " + count(zeros) +
                             " that start at zero; `init` or --weights gives values");
  }

  onnx::GraphProto &graph;
  const ImportOptions &options;
  ImportReport &report;
  OrtCheckpoint checkpoint;
  llvm::StringSet<> initializers, used;
  int64_t trained = 0, frozen = 0, zeros = 0;
};

} // namespace

llvm::StringSet<> addInputParameters(ModelFile &file, const ImportOptions &options,
                                     ImportReport &report) {
  return InputParameters(file, options, report).run();
}

} // namespace sluice::frontend
