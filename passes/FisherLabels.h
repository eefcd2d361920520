#pragma once
// Which labels the squared gradients of @fisher are of: those given, one draw from the
// model's own distribution, or one class for all rows, weighted by its probability, so
// that the sum over classes is the expectation.

#include "ir/TrainingSpec.h"
#include "ir/graph/GraphBuilder.h"
#include "passes/EntryFunctions.h"
#include "passes/StateSymbols.h"

namespace sluice {

class FisherLabels {
public:
  FisherLabels(mlir::func::FuncOp entry, const TrainingSpec &spec, StateSymbols &state)
      : entry(entry), spec(spec), reads(entry, state) {}

  /// Puts what the model says in place of the labels given, but those that the loss
  /// ignores. Fails after an error.
  mlir::LogicalResult replace();

  /// Of a class for all rows: `loss` becomes the logits, and `cotangent` theirs, times
  /// the root of the class's probability. Else both stay as they are.
  mlir::LogicalResult weigh(mlir::Value &loss, mlir::Value &cotangent);

private:
  mlir::LogicalResult findRows();
  mlir::Value drawn(mlir::OpBuilder &builder);
  mlir::Value exponents(graph::GraphBuilder &b);

  mlir::func::FuncOp entry;
  const TrainingSpec &spec;
  EntryReads reads;
  std::string logitsName;
  int64_t rows = 0, classes = 0;
};

} // namespace sluice
