#pragma once
// An ONNX file on disk: read in chunks (so that the bytes are in memory once), hashed,
// and checked for versions this importer knows.

#include "frontend/onnx/OnnxProto.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"

#include <memory>
#include <optional>
#include <string>

namespace sluice::frontend {

struct ModelFile {
  std::unique_ptr<onnx::ModelProto> proto;
  std::string path, folder;
  std::string hash; // 16 hexadecimal digits of the file's bytes
};

/// Returns what went wrong.
std::optional<std::string> readModelFile(const std::string &path, ModelFile &file);

/// Version of a domain ("" and "ai.onnx" are one); 0 if the model does not import it.
int64_t opsetOf(const onnx::ModelProto &model, llvm::StringRef domain);

/// A range of bytes and what keeps it alive.
struct Bytes {
  const char *data = nullptr;
  size_t size = 0;
  std::shared_ptr<const void> owner;
};

/// Files beside the model that hold tensors, mapped once each.
class ExternalFiles {
public:
  explicit ExternalFiles(std::string folder) : folder(std::move(folder)) {}
  /// `expected` bytes of the tensor; returns what went wrong.
  std::optional<std::string> find(const onnx::TensorProto &tensor, int64_t expected,
                                  Bytes &bytes);

  /// The tensor lies in a file of the model's folder that does not exist.
  bool isAbsent(const onnx::TensorProto &tensor) const;

private:
  std::optional<std::string> open(const std::string &location, Bytes &file);

  std::string folder;
  llvm::StringMap<Bytes> files;
};

} // namespace sluice::frontend
