#pragma once
// Writes trained weights back into the ONNX file they came from.

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace sluice {

/// Little-endian elements in row-major order, of the type the model has, or f32, which
/// are rounded to the nearest where the model has fewer bits.
struct TensorBytes {
  const char *data = nullptr;
  size_t size = 0;
  bool isF32 = false;
};

/// Copies the model at `modelPath` to `outPath` with the given initializers replaced
/// (names without "param/"). Weights that ConstantOfShape or Constant nodes made become
/// initializers. The result is self-contained unless it would pass 2 GiB, which is
/// refused. The file appears whole or not at all. Returns what went wrong.
std::optional<std::string> exportOnnx(const std::string &modelPath,
                                      const std::map<std::string, TensorBytes> &weights,
                                      const std::string &outPath);

} // namespace sluice
