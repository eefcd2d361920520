#include "tests/frontend/ModelRunner.h"
#include "frontend/onnx/TensorData.h"

#include <cmath>
#include <fstream>

namespace sluice::test {

using graph::HostTensor;

mlir::MLIRContext &context() {
  static mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  return context;
}

RunResult runModel(const std::string &path, const std::vector<NamedTensor> &inputs,
                   ImportOptions options, graph::Precision precision) {
  RunResult result;
  for (const NamedTensor &input : inputs)
    if (!options.shapes.count(input.name))
      options.shapes[input.name] = input.tensor.shape;
  auto module = importOnnx(context(), path, options, result.report);
  if (failed(module)) {
    for (const std::string &problem : result.report.problems())
      result.error += (result.error.empty() ? "" : "; ") + problem;
    return result;
  }
  auto function = (*module)->lookupSymbol<mlir::func::FuncOp>("forward");
  std::vector<HostTensor> arguments;
  for (const ImportedTensor &wanted : result.report.inputs)
    for (const NamedTensor &input : inputs)
      if (input.name == wanted.name) {
        arguments.push_back(input.tensor);
        arguments.back().elementType =
            mlir::cast<mlir::RankedTensorType>(
                function.getArgumentTypes()[arguments.size() - 1])
                .getElementType();
      }
  std::string problem;
  mlir::ScopedDiagnosticHandler handler(&context(), [&](mlir::Diagnostic &diagnostic) {
    problem = diagnostic.str();
    return mlir::success();
  });
  auto state = graph::initialState(**module);
  auto values = failed(state) ? mlir::FailureOr<std::vector<HostTensor>>(mlir::failure())
                              : graph::interpret(function, arguments, *state, precision);
  if (failed(values)) {
    result.error = "interpreter: " + problem;
    return result;
  }
  for (size_t i = 0; i < values->size(); ++i)
    result.outputs.push_back({result.report.outputs[i].name, std::move((*values)[i])});
  return result;
}

HostTensor readTensor(const std::string &path, std::string &name) {
  std::ifstream file(path, std::ios::binary);
  onnx::TensorProto proto;
  HostTensor none;
  if (!file || !proto.ParseFromIstream(&file))
    return none;
  name = proto.name();
  std::string error;
  frontend::TensorReader reader(&context(), "");
  auto tensor = reader.host(proto, error);
  return tensor ? std::move(*tensor) : none;
}

HostTensor realTensor(std::vector<int64_t> shape, std::vector<double> values) {
  HostTensor tensor;
  tensor.elementType = mlir::Float32Type::get(&context());
  tensor.shape = std::move(shape);
  tensor.reals = std::move(values);
  return tensor;
}

std::vector<double> numbers(const HostTensor &tensor) {
  return tensor.isReal()
             ? tensor.reals
             : std::vector<double>(tensor.integers.begin(), tensor.integers.end());
}

static std::string text(const std::vector<int64_t> &shape) {
  return frontend::shapeText(shape);
}

std::string compare(const HostTensor &actual, const HostTensor &expected, double rtol,
                    double atol) {
  if (actual.shape != expected.shape)
    return "shape " + text(actual.shape) + ", expected " + text(expected.shape);
  std::vector<double> a = numbers(actual), b = numbers(expected);
  for (size_t i = 0; i < b.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i]))
      continue;
    if (a[i] == b[i] || std::abs(a[i] - b[i]) <= atol + rtol * std::abs(b[i]))
      continue;
    return "element " + std::to_string(i) + " is " + std::to_string(a[i]) +
           ", expected " + std::to_string(b[i]);
  }
  return "";
}

} // namespace sluice::test
