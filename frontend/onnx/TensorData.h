#pragma once
// Tensors stored in an ONNX file: their type here, and their elements, copied at most
// once.

#include "frontend/onnx/Emitter.h"
#include "frontend/onnx/ModelFile.h"

#include "llvm/ADT/DenseMap.h"

namespace sluice::frontend {

/// The element type an ONNX type is computed in; null if it is not supported. Unsigned
/// types take the next larger signed one that holds them (uint64: i64), floating point of
/// eight and fewer bits f32, whose values are of that format.
Type elementType(mlir::MLIRContext *context, int32_t onnxType);
std::string onnxTypeName(int32_t onnxType);
/// Bits of an unsigned type, 0 for others.
int unsignedBits(int32_t onnxType);

class TensorReader {
public:
  TensorReader(mlir::MLIRContext *context, std::string folder)
      : context(context), external(std::move(folder)) {}

  // Null or nothing on failure; `error` says why.
  mlir::RankedTensorType type(const onnx::TensorProto &tensor, std::string &error);
  /// Large floating-point tensors become resources that keep the file's bytes alive.
  /// Takes the elements out of `tensor`.
  mlir::ElementsAttr attribute(onnx::TensorProto &tensor, std::string &error);
  std::optional<graph::HostTensor> host(onnx::TensorProto &tensor, std::string &error);
  /// Bytes as stored (little-endian, row-major).
  std::optional<Bytes> bytes(onnx::TensorProto &tensor, std::string &error);

  /// Its bytes lie in a file that does not exist.
  bool isAbsent(const onnx::TensorProto &tensor) const {
    return external.isAbsent(tensor);
  }

private:
  std::optional<Bytes> load(onnx::TensorProto &tensor, std::string &error);

  mlir::MLIRContext *context;
  ExternalFiles external;
  llvm::DenseMap<const onnx::TensorProto *, Bytes> loaded;
};

} // namespace sluice::frontend
