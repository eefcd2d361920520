#pragma once
// Imports a model and runs its forward function in the interpreter.

#include "frontend/OnnxImporter.h"
#include "ir/graph/Interpreter.h"

#include "mlir/IR/MLIRContext.h"

#include <string>
#include <vector>

namespace sluice::test {

struct NamedTensor {
  std::string name;
  graph::HostTensor tensor;
};

struct RunResult {
  std::vector<NamedTensor> outputs;
  std::string error; // empty if the model was imported and ran
  ImportReport report;
};

mlir::MLIRContext &context();
/// Inputs that are fixed by `options.values` need no tensor.
RunResult runModel(const std::string &path, const std::vector<NamedTensor> &inputs,
                   ImportOptions options,
                   graph::Precision precision = graph::Precision::Single);
/// A tensor from a TensorProto file; an element type of null if it cannot be read.
graph::HostTensor readTensor(const std::string &path, std::string &name);
graph::HostTensor realTensor(std::vector<int64_t> shape, std::vector<double> values);
/// The elements as numbers of either kind.
std::vector<double> numbers(const graph::HostTensor &tensor);

/// Whether |a - b| <= atol + rtol |b| everywhere (NaN equals NaN), and shapes agree; else
/// why not.
std::string compare(const graph::HostTensor &actual, const graph::HostTensor &expected,
                    double rtol, double atol);

} // namespace sluice::test
