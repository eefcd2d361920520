// What exporters do to a model that training would notice: names made up, batch
// normalisation folded into convolutions, a token repeated for a fixed batch. None of it
// can be told for certain from the file, so it is reported with what settles it.
#include "frontend/onnx/GraphImporter.h"

#include "llvm/ADT/StringExtras.h"

#include <cstring>
#include <set>

namespace sluice::frontend {

namespace {

bool isFloatTensor(const onnx::TensorProto &tensor) {
  return tensor.data_type() == onnx::TensorProto::FLOAT && tensor.dims_size() > 0;
}

/// "onnx::MatMul_227", "val_12", "349": numbered by an exporter.
bool isMadeUp(llvm::StringRef name) {
  if (name.starts_with("onnx::"))
    return true;
  llvm::StringRef digits = name;
  for (llvm::StringRef prefix : {"val_", "_val_", "const_", "constant_", "initializer_"})
    if (digits.consume_front(prefix))
      break;
  return !digits.empty() && llvm::all_of(digits, llvm::isDigit);
}

const onnx::NodeProto *firstReader(const UseMap &uses, llvm::StringRef name) {
  auto found = uses.find(name);
  return found == uses.end() || found->second.empty() ? nullptr
                                                      : found->second.front().node;
}

bool normalizes(llvm::StringRef op) {
  return op.ends_with("Normalization") || op == "LRN" || op == "GroupNorm";
}

/// Whether all slices along dimension 0 are the same and hold different numbers.
bool holdsCopies(llvm::StringRef bytes, int64_t copies) {
  size_t slice = bytes.size() / size_t(copies);
  for (int64_t i = 1; i < copies; ++i)
    if (std::memcmp(bytes.data(), bytes.data() + size_t(i) * slice, slice))
      return false;
  std::set<llvm::StringRef> different;
  for (size_t at = 0; at + 4 <= slice && different.size() < 5; at += 4)
    different.insert(bytes.substr(at, 4));
  return different.size() > 4;
}

} // namespace

void GraphImporter::noteNames(const onnx::GraphProto &graph, const UseMap &uses) {
  int64_t weights = 0;
  std::vector<std::string> lost;
  for (const auto &tensor : graph.initializer()) {
    if (!isFloatTensor(tensor) || !firstReader(uses, tensor.name()))
      continue;
    ++weights;
    if (isMadeUp(tensor.name()))
      lost.push_back("'" + tensor.name() + "'");
  }
  if (lost.empty())
    return;
  std::string some = lost[0];
  for (size_t i = 1; i < lost.size() && i < 3; ++i)
    some += ", " + lost[i];
  note("names", std::to_string(lost.size()) + " of " + std::to_string(weights) +
                    " weights carry names that the exporter made up (" + some +
                    (lost.size() > 3 ? ", ..." : "") +
                    "): they were transposed or folded, and another export may name them "
                    "differently; exporting with do_constant_folding=False keeps the "
                    "model's own names");
}

void GraphImporter::noteFoldedNorms(const onnx::GraphProto &graph) {
  int64_t convolutions = 0, biased = 0, renamed = 0;
  std::string example;
  for (const auto &node : graph.node()) {
    if (normalizes(node.op_type()))
      return;
    if (node.op_type() != "Conv")
      continue;
    ++convolutions;
    if (node.input_size() < 3 || node.input(2).empty())
      continue;
    ++biased;
    bool both = isMadeUp(node.input(1)) && isMadeUp(node.input(2));
    renamed += both;
    if (example.empty() || (both && renamed == 1))
      example = nodeName(node);
  }
  // All of a deep stack with biases and without any normalisation, or names that only
  // folding gives.
  bool deep = convolutions >= 8 && biased == convolutions;
  if (!deep && renamed == 0)
    return;
  note("batch normalisation",
       std::to_string(renamed ? renamed : biased) + " convolutions ('" + example +
           "', ...) have biases and the model has no normalisation: where it had batch "
           "normalisation, an export in evaluation mode has folded it away and it is not "
           "trained as such; export in training mode to keep it");
}

void GraphImporter::noteCopies(onnx::GraphProto &graph, const UseMap &uses) {
  for (auto &tensor : *graph.mutable_initializer()) {
    const onnx::NodeProto *node = firstReader(uses, tensor.name());
    if (!isFloatTensor(tensor) || tensor.dims_size() < 2 || tensor.dims(0) < 2 || !node ||
        node->op_type() != "Concat" || copiesOf(tensor.name()))
      continue;
    std::string error;
    auto bytes = reader.bytes(tensor, error);
    if (bytes && holdsCopies({bytes->data, bytes->size}, tensor.dims(0)))
      note("copies",
           "'" + tensor.name() + "' holds " + std::to_string(tensor.dims(0)) +
               " equal copies along dimension 0, as a token expanded to a fixed "
               "batch is exported, and each would be trained apart; `tie: [[" +
               tensor.name() + ", \"" + tensor.name() + "@copies\"]]` trains one");
  }
}

} // namespace sluice::frontend
