#pragma once
// What holds a parameter near the values it had at the ends of tasks before: a quadratic
// penalty with an importance per element, as state and elementwise operations of the
// update, so that it is planned, fused and saved as moments are.
//
//   ewc: lambda / 2 * sum over tasks of F (w - anchor)^2 (Kirkpatrick et al., 2017; one
//        anchor and a decaying F: Schwarz et al., 2018)
//   si:  c * Omega (w - anchor)^2 (Zenke et al., 2017), lambda = 2 c
//
// State: KIND/NAME/anchor f32; KIND/NAME/fisher (of si "omega"), in fewer bytes;
// of si also si/NAME/path, the sum of -g * step since the anchor. Of a second anchor
// "anchor.2", and so on. KIND/tasks counts consolidations. The runtime fills all of it
// (runtime/continual).

#include "ir/TrainingSpec.h"
#include "passes/StateSymbols.h"

namespace sluice {

class Penalty {
public:
  /// Of one parameter, in one entry.
  Penalty(const PenaltySpec &spec, graph::ParameterOp parameter, StateSymbols &state,
          EntryReads &reads, mlir::OpBuilder &builder);

  /// The gradient with that of the penalty: what coupled penalties do.
  mlir::Value addTo(mlir::Value gradient, mlir::Value w);

  /// A proximal step towards the anchors from where the optimizer went: what penalties do
  /// that are not coupled. With h = lr * lambda * F it is next + sum of h (anchor - next)
  /// / (1 + sum of h): to the first order the gradient step, and stable for every h.
  mlir::Value pull(mlir::Value next);

  /// Adds to the path of si, where `moves` (i1, scalar) holds.
  void walk(mlir::Value gradient, mlir::Value before, mlir::Value after,
            mlir::Value moves);

private:
  struct Anchor {
    mlir::Value value, importance; // f32
  };
  mlir::Value control(llvm::StringRef name, double fill);
  Anchor declare(int64_t task, llvm::ArrayRef<int64_t> shape);
  mlir::Value declareImportance(const std::string &symbol, llvm::ArrayRef<int64_t> shape);
  graph::ParameterOp declareState(const std::string &symbol,
                                  llvm::ArrayRef<int64_t> shape, mlir::Type element);

  const PenaltySpec &spec;
  graph::ParameterOp parameter;
  StateSymbols &state;
  EntryReads &reads;
  mlir::OpBuilder &builder;
};

/// Writes what the runtime needs on the module (`graph.continual`), with lines of the
/// report. Behind the updates.
void describePenalty(mlir::ModuleOp module, const PenaltySpec &spec, StateSymbols &state);

} // namespace sluice
