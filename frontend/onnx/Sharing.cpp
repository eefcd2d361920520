// Exporters merge weights that happen to be equal and copy weights that are meant to be
// one. Neither can be told from the file, so both are reported with the key that settles
// it.
#include "frontend/onnx/GraphImporter.h"

#include <cstring>
#include <set>

namespace sluice::frontend {

namespace {

constexpr int64_t samples = 64;

/// 64 elements of a float matrix at fixed pseudo-random places, seen as it lies or
/// transposed; nothing if they are all equal (zeros, ones).
std::optional<std::string> sample(const Bytes &bytes, int64_t rows, int64_t columns,
                                  bool transposed) {
  std::string text = shapeText({rows, columns}) + ":";
  std::set<std::string> different;
  for (int64_t k = 0; k < samples; ++k) {
    int64_t i = k * 2654435761 % rows, j = (k * 40503 + 7) % columns;
    int64_t at = transposed ? j * rows + i : i * columns + j;
    std::string element(bytes.data + at * sizeof(float), sizeof(float));
    different.insert(element);
    text += element;
  }
  return different.size() > 4 ? std::optional<std::string>(text) : std::nullopt;
}

/// PyTorch puts an Identity node in the place of a merged name.
bool isMergedName(Use use) {
  return use.node->op_type() == "Identity" && use.node->output_size() == 1;
}

/// Readers that use a vector as a weight of their own.
bool isOwnWeight(Use use) {
  llvm::StringRef op = use.node->op_type();
  if (op.ends_with("Normalization"))
    return true;
  return (op == "Conv" || op == "Gemm" || op == "ConvTranspose") && use.index == 2;
}

/// The nodes that compute with a tensor, but for names of running statistics, which are
/// kept apart in any case.
llvm::SmallVector<Use> readersOf(llvm::StringRef name, const UseMap &uses) {
  llvm::SmallVector<Use> readers;
  auto found = uses.find(name);
  if (found == uses.end())
    return readers;
  for (Use use : found->second) {
    auto behind = isMergedName(use) ? uses.find(use.node->output(0)) : uses.end();
    bool statistic =
        behind != uses.end() && llvm::any_of(behind->second, isRunningStatistic);
    if (!statistic && use.node->op_type() != "Shape")
      readers.push_back(use);
  }
  return readers;
}

/// What several readers of one tensor mean, and the names that were merged into it.
std::string sharedText(const std::string &name, llvm::ArrayRef<Use> readers) {
  std::string merged;
  for (Use use : readers)
    if (isMergedName(use))
      merged += (merged.empty() ? "'" : ", '") + use.node->output(0) + "'";
  return "'" + name + "' is read by " + std::to_string(readers.size()) + " nodes" +
         (merged.empty() ? "" : " (as " + merged + ": equal weights were merged)") +
         " and trained as one; `untie: [" + name + "]` trains a copy for each";
}

} // namespace

void GraphImporter::noteSharing(onnx::GraphProto &graph, const UseMap &uses) {
  llvm::StringMap<std::string> seen, flipped;
  for (auto &tensor : *graph.mutable_initializer()) {
    std::string error;
    auto type = tensor.data_type() == onnx::TensorProto::FLOAT
                    ? reader.type(tensor, error)
                    : mlir::RankedTensorType();
    if (!type || type.getRank() == 0)
      continue;
    auto readers = readersOf(tensor.name(), uses);
    bool shared = readers.size() > 1 && !llvm::is_contained(options.untie, tensor.name());
    if (shared && (type.getRank() > 1 || llvm::any_of(readers, isMergedName) ||
                   llvm::all_of(readers, isOwnWeight)))
      note("tied", sharedText(tensor.name(), readers));
    if (type.getRank() < 2 || type.getNumElements() < samples)
      continue;
    auto bytes = reader.bytes(tensor, error);
    if (!bytes)
      continue;
    int64_t rows = type.getDimSize(0), columns = type.getNumElements() / rows;
    auto same = sample(*bytes, rows, columns, false);
    if (!same)
      continue;
    auto tell = [&](const std::string &first, bool transposed) {
      note("equal", "'" + tensor.name() + "' holds the same values as '" + first + "'" +
                        (transposed ? " transposed" : "") +
                        " and is trained apart; `tie: [[" + first + ", \"" +
                        tensor.name() + (transposed ? "@transpose" : "") +
                        "\"]]` makes them one");
    };
    if (auto twin = seen.find(*same); twin != seen.end())
      tell(twin->second, false);
    else if (auto mirror = flipped.find(*same); mirror != flipped.end())
      tell(mirror->second, true);
    seen.try_emplace(*same, tensor.name());
    if (type.getRank() == 2)
      if (auto other = sample(*bytes, columns, rows, true))
        flipped.try_emplace(*other, tensor.name());
  }
}

} // namespace sluice::frontend
