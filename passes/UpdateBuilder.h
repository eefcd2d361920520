#pragma once
// The optimizer part of an entry: from sums of gradients to new parameters.

#include "ir/TrainingSpec.h"
#include "ir/graph/GraphBuilder.h"
#include "passes/ClipGradients.h"
#include "passes/EntryFunctions.h"
#include "passes/RankShards.h"
#include "passes/StateSymbols.h"

namespace sluice {

/// A trainable parameter with the sum of its gradients over the update's samples.
struct Gradient {
  graph::ParameterOp parameter;
  mlir::Value sum; // of shards that are shared: the own rows
  RankShards shards = {};
  mlir::Value task =
      {}; // mean gradient of the loss alone, where a penalty holds the parameter
  mlir::Value count = {}; // of samples in the sum
  mlir::Value old =
      {}; // weights it was computed with, where the update makes up for them
  graph::ParameterOp accumulator = {}, counter = {}; // of @micro
};

/// Builds the optimizer part of one entry.
class UpdateBuilder {
public:
  UpdateBuilder(mlir::func::FuncOp entry, const TrainingSpec &spec, StateSymbols &state)
      : entry(entry), spec(spec), state(state), reads(entry, state),
        builder(returnOf(entry)) {}

  /// Updates all parameters. Returns the entry's results: norms of the mean gradient, and
  /// with a loss scale the index of the first gradient (in name order) that is not
  /// finite, -1 where all are. `buffers`: statistics that @micro has changed.
  std::vector<NamedValue> build(std::vector<Gradient> gradients,
                                llvm::ArrayRef<graph::ParameterOp> buffers = {});

private:
  graph::GraphBuilder at(llvm::StringRef name);
  mlir::Value inverseOf(mlir::Value count);
  mlir::Value multiply(mlir::Value gradient, mlir::Value factor,
                       graph::ParameterOp parameter);
  void divide(std::vector<Gradient> &gradients);
  void addPenalty(std::vector<Gradient> &gradients);
  mlir::Value checkFinite(llvm::ArrayRef<Gradient> gradients, GradientClip &clip);
  mlir::Value isActive(graph::GraphBuilder &b, graph::ParameterOp parameter);
  void update(const Gradient &gradient);

  mlir::func::FuncOp entry;
  const TrainingSpec &spec;
  StateSymbols &state;
  EntryReads reads;
  mlir::OpBuilder builder;
  mlir::Value applies; // i1; null: always
};

} // namespace sluice
