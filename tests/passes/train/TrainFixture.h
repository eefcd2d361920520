#pragma once
// Runs the train stage on a small model and its entries in the interpreter.

#include "ir/TrainingSpec.h"
#include "passes/Pipeline.h"
#include "tests/ir/GraphFixture.h"

#include "mlir/Pass/PassManager.h"

#include <map>

namespace sluice {

using graph::HostTensor;
using graph::integer;
using graph::Precision;
using graph::real;
using graph::Shape;
using graph::uniform;
using Values = std::map<std::string, HostTensor>;

/// Plain gradient descent with rate 1: a parameter moves by minus its gradient.
inline TrainingSpec descent(const std::string &loss) {
  TrainingSpec spec;
  spec.loss.kind = loss;
  spec.optimizer.kind = "sgd";
  spec.optimizer.lr = 1;
  spec.optimizer.weightDecay = 0;
  return spec;
}

/// A model after the train stage, with its state.
class Trained {
public:
  Trained(const std::string &text, const TrainingSpec &spec) {
    mlir::ScopedDiagnosticHandler handler(&graph::context(), [&](mlir::Diagnostic &d) {
      errors += d.str() + "\n";
      for (mlir::Diagnostic &note : d.getNotes())
        errors += note.str() + "\n";
      return mlir::success();
    });
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &graph::context());
    if (!module)
      return;
    mlir::PassManager passes(&graph::context());
    buildTrainPipeline(passes, spec);
    good = succeeded(passes.run(*module));
    auto initial = graph::initialState(*module);
    if (succeeded(initial))
      state = *initial;
    set("control/valid", static_cast<double>(batch()));
    for (auto &entry : state)
      if (entry.getKey().starts_with("control/") && entry.getKey().ends_with("/lr"))
        entry.second.reals = {spec.optimizer.lr};
  }

  int64_t batch() {
    auto attribute = (*module)->getAttrOfType<mlir::IntegerAttr>("graph.batch");
    return attribute ? attribute.getInt() : 0;
  }
  /// Fills a state tensor with one value; unknown names are ignored, as entries need not
  /// read every control.
  void set(const std::string &name, double value) {
    auto found = state.find(name);
    if (found == state.end())
      return;
    for (double &x : found->second.reals)
      x = value;
    for (int64_t &x : found->second.integers)
      x = static_cast<int64_t>(value);
  }
  HostTensor &at(const std::string &name) {
    EXPECT_TRUE(state.contains(name)) << name;
    return state[name];
  }
  /// Random values for all floating-point parameters.
  void randomize(unsigned seed = 1) {
    for (auto parameter : module->getOps<graph::ParameterOp>())
      if (parameter.getRole() == "parameter") {
        HostTensor &tensor = state[parameter.getSymName()];
        tensor.reals = uniform(tensor.shape, -1, 1, seed++).reals;
      }
  }
  mlir::func::FuncOp entry(const std::string &name) {
    return module->lookupSymbol<mlir::func::FuncOp>(name);
  }
  /// Runs an entry in double precision: inputs and results by name.
  Values run(const std::string &name, const Values &inputs = {}) {
    mlir::func::FuncOp function = entry(name);
    EXPECT_TRUE(function) << errors;
    if (!function)
      return {};
    std::vector<HostTensor> arguments;
    for (unsigned i = 0; i < function.getNumArguments(); ++i) {
      auto key = function.getArgAttrOfType<mlir::StringAttr>(i, "graph.name");
      EXPECT_TRUE(inputs.count(key.str())) << key.str();
      arguments.push_back(inputs.at(key.str()));
    }
    auto results = interpret(function, arguments, state, Precision::Double);
    EXPECT_TRUE(succeeded(results));
    Values named;
    for (unsigned i = 0; succeeded(results) && i < results->size(); ++i)
      named[function.getResultAttrOfType<mlir::StringAttr>(i, "graph.name").str()] =
          (*results)[i];
    return named;
  }

  bool good = false;
  std::string errors;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  graph::StateMap state;
};

inline double scalar(const Values &values, const std::string &name) {
  return values.at(name).reals.at(0);
}
inline double meanLoss(const Values &results) {
  return scalar(results, "loss_sum") / scalar(results, "loss_count");
}

/// One step of `descent` moves every trainable parameter by minus the central difference
/// of the step's own mean loss.
inline void expectStepIsGradient(Trained &trained, const Values &inputs,
                                 double tolerance = 1e-6) {
  ASSERT_TRUE(trained.good) << trained.errors;
  const graph::StateMap before = trained.state;
  trained.run("step", inputs);
  const graph::StateMap after = trained.state;
  auto lossAt = [&](const graph::StateMap &point) {
    trained.state = point;
    return meanLoss(trained.run("step", inputs));
  };
  for (auto parameter : trained.module->getOps<graph::ParameterOp>()) {
    if (!parameter.getTrainable())
      continue;
    const std::string name = parameter.getSymName().str();
    for (size_t i = 0; i < before.lookup(name).reals.size(); ++i) {
      graph::StateMap above = before, below = before;
      above[name].reals[i] += 1e-6;
      below[name].reals[i] -= 1e-6;
      double expected = (lossAt(above) - lossAt(below)) / 2e-6;
      double moved = before.lookup(name).reals[i] - after.lookup(name).reals[i];
      EXPECT_NEAR(moved, expected, tolerance) << name << " element " << i;
    }
  }
  trained.state = before;
}

} // namespace sluice
