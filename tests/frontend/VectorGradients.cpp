#include "frontend/onnx/Emitter.h"
#include "ir/graph/GraphBuilder.h"
#include "passes/ReverseMode.h"
#include "tests/frontend/VectorCheck.h"

#include <cmath>
#include <random>

namespace sluice::test {

using namespace mlir;
using graph::HostTensor;

namespace {

constexpr int64_t mostElements = 20'000; // of the operands of one case
constexpr int attempts = 4;              // at other points: kinks are met by chance

bool isReal(Type type) {
  return isa<FloatType>(cast<RankedTensorType>(type).getElementType());
}

/// A forward function whose real operands are parameters, with a random weighting of its
/// results as loss and the gradient of that as further results.
class CheckedFunction {
public:
  CheckedFunction(ModuleOp module, std::mt19937 &random)
      : module(module), function(module.lookupSymbol<func::FuncOp>("forward")),
        random(random) {}

  /// Returns what is missing.
  std::string build() {
    makeParameters();
    Operation *end = function.getBody().front().getTerminator();
    OpBuilder builder(end);
    Value loss = weighted(builder, end->getOperands());
    SmallVector<Value> results;
    if (!loss)
      return "";
    hasLoss = true;
    results.push_back(loss);
    ReverseMode reverse(function);
    if (failed(reverse.run(loss)))
      return "an operation has no gradient";
    for (auto &entry : reverse.gradients()) {
      names.push_back(entry.getKey().str());
      results.push_back(entry.getValue());
    }
    end->setOperands(results);
    function.setFunctionType(builder.getFunctionType(
        function.getArgumentTypes(), llvm::to_vector(ValueRange(results).getTypes())));
    function->removeAttr("res_attrs");
    return "";
  }

  bool hasLoss = false; // some result is real
  const std::vector<std::string> &gradientNames() const { return names; }
  const std::vector<std::string> &operands() const { return parameters; }

  FailureOr<std::vector<HostTensor>> run(const std::vector<HostTensor> &inputs,
                                         graph::StateMap state) {
    return graph::interpret(function, inputs, state, graph::Precision::Double);
  }

private:
  void makeParameters() {
    OpBuilder symbols(module.getBody(), module.getBody()->begin());
    OpBuilder reads(&function.getBody().front(), function.getBody().front().begin());
    for (auto [i, argument] : llvm::enumerate(function.getArguments())) {
      if (!isReal(argument.getType()))
        continue;
      std::string name = "operand/" + std::to_string(i);
      parameters.push_back(name);
      symbols.create<graph::ParameterOp>(
          module.getLoc(), symbols.getStringAttr(name), TypeAttr::get(argument.getType()),
          symbols.getStringAttr("parameter"), symbols.getUnitAttr(), ElementsAttr(),
          symbols.getF64FloatAttr(0), StringAttr(), StringAttr());
      Value read = reads.create<graph::ReadOp>(module.getLoc(), argument.getType(), name);
      argument.replaceAllUsesWith(read);
    }
  }

  Value weighted(OpBuilder &builder, ValueRange results) {
    graph::GraphBuilder b(module.getLoc(), builder);
    std::uniform_real_distribution<double> weight(0.5, 1.5);
    Value loss;
    for (Value result : results) {
      auto type = cast<RankedTensorType>(result.getType());
      if (!isReal(type) || type.getNumElements() == 0)
        continue;
      HostTensor weights = HostTensor::zeros(type);
      for (double &w : weights.reals)
        w = weight(random);
      Value factors = b.create<graph::ConstantOp>(frontend::toAttribute(weights));
      Value part = b.sumAll(b.cast(b.mul(result, factors), b.getF64Type()));
      loss = loss ? b.add(loss, part) : part;
    }
    return loss;
  }

  ModuleOp module;
  func::FuncOp function;
  std::mt19937 &random;
  std::vector<std::string> parameters, names;
};

double dot(const HostTensor &a, const HostTensor &b) {
  double sum = 0;
  for (size_t i = 0; i < a.reals.size(); ++i)
    sum += a.reals[i] * b.reals[i];
  return sum;
}

/// The state moved along a direction in one parameter.
graph::StateMap moved(const graph::StateMap &state, const std::string &name,
                      const HostTensor &direction, double step) {
  graph::StateMap result = state;
  HostTensor &tensor = result[name];
  for (size_t i = 0; i < tensor.reals.size(); ++i)
    tensor.reals[i] += step * direction.reals[i];
  return result;
}

constexpr char notFinite[] = "the results are not finite";

/// Whether all directional derivatives agree at one point; why not.
std::string compareAt(CheckedFunction &checked, const std::vector<HostTensor> &inputs,
                      const graph::StateMap &state, std::mt19937 &random) {
  auto base = checked.run(inputs, state);
  if (failed(base))
    return "the interpreter fails";
  if (!std::isfinite((*base)[0].reals[0]))
    return notFinite;
  std::uniform_real_distribution<double> draw(-1, 1);
  for (auto &entry : state) {
    std::string name = entry.getKey().str();
    const HostTensor &value = entry.getValue();
    if (!value.isReal() || name.rfind("control/", 0) == 0)
      continue;
    HostTensor direction = value;
    for (double &d : direction.reals)
      d = draw(random);
    constexpr double step = 1e-6;
    auto up = checked.run(inputs, moved(state, name, direction, step));
    auto down = checked.run(inputs, moved(state, name, direction, -step));
    if (failed(up) || failed(down))
      return "the interpreter fails";
    double expected = ((*up)[0].reals[0] - (*down)[0].reals[0]) / (2 * step), found = 0;
    double size = 0;
    for (size_t i = 0; i < checked.gradientNames().size(); ++i)
      if (checked.gradientNames()[i] == name) {
        found = dot((*base)[i + 1], direction);
        size = std::sqrt(dot((*base)[i + 1], (*base)[i + 1]));
      }
    bool hasOne = llvm::is_contained(checked.gradientNames(), name);
    bool trained = hasOne || llvm::is_contained(checked.operands(), name);
    double noise = 1e-8 * std::abs((*base)[0].reals[0]) / step * 1e-2;
    if (trained && !(std::abs(expected - found) <= 1e-4 * (1 + size) + noise))
      return name + ": derivative " + std::to_string(found) + ", differences say " +
             std::to_string(expected);
  }
  return "";
}

} // namespace

GradientOutcome checkVectorGradient(const VectorCase &test) {
  GradientOutcome outcome;
  if (!test.error.empty() || test.sets.empty() || !test.sets[0].error.empty())
    return outcome;
  const VectorSet &vector = test.sets[0];
  int64_t elements = 0;
  bool half = false; // rounding to it is no smooth function
  auto look = [&](const HostTensor &tensor) {
    elements += tensor.size();
    half |= tensor.isReal() && tensor.elementType.getIntOrFloatBitWidth() == 16;
  };
  for (const NamedTensor &input : vector.inputs)
    look(input.tensor);
  for (const HostTensor &output : vector.outputs)
    look(output);
  if (half || elements > mostElements)
    return outcome;
  std::string diagnostic;
  ScopedDiagnosticHandler handler(&context(), [&](Diagnostic &d) {
    diagnostic = d.str();
    return success();
  });
  std::mt19937 random(7);
  for (int attempt = 0; attempt < 2; ++attempt) {
    ImportOptions options;
    fixValues(vector, attempt, options);
    for (const NamedTensor &input : vector.inputs)
      options.shapes[input.name] = input.tensor.shape;
    ImportReport report;
    auto module = importOnnx(context(), test.path, options, report);
    if (failed(module))
      continue;
    auto forward = (*module)->lookupSymbol<func::FuncOp>("forward");
    for (Operation &op : forward.getBody().front())
      if (!isa<graph::ConstantOp, graph::ReadOp, func::ReturnOp>(op))
        outcome.operations.insert(op.getName().stripDialect().str());
    std::vector<HostTensor> inputs;
    for (const ImportedTensor &wanted : report.inputs)
      for (const NamedTensor &input : vector.inputs)
        if (input.name == wanted.name)
          inputs.push_back(input.tensor);
    for (auto [input, type] : llvm::zip(inputs, forward.getArgumentTypes()))
      input.elementType = cast<RankedTensorType>(type).getElementType();
    CheckedFunction checked(**module, random);
    if (std::string missing = checked.build(); !missing.empty()) {
      outcome.kind = GradientOutcome::Missing;
      outcome.detail = diagnostic.empty() ? missing : diagnostic;
      return outcome;
    }
    bool any = !checked.gradientNames().empty();
    outcome.kind = any ? GradientOutcome::Checked : GradientOutcome::Zero;
    auto state = graph::initialState(**module);
    if (failed(state) || !checked.hasLoss)
      return outcome;
    std::uniform_real_distribution<double> noise(-1, 1);
    for (int point = 0; point < attempts; ++point) {
      graph::StateMap at = *state;
      for (const std::string &name : checked.operands()) {
        HostTensor &tensor = at[name];
        tensor.reals = inputs[std::stoul(name.substr(8))].reals;
        for (double &x : tensor.reals)
          x += 1e-2 * point * (0.1 + std::abs(x)) * noise(random);
      }
      outcome.detail = compareAt(checked, inputs, at, random);
      if (outcome.detail.empty())
        return outcome;
      if (outcome.detail == notFinite)
        return outcome.kind = GradientOutcome::Skipped, outcome;
    }
    outcome.kind = GradientOutcome::Wrong;
    return outcome;
  }
  return outcome;
}

} // namespace sluice::test
