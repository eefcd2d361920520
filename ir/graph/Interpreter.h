#pragma once
// Runs any graph function on host tensors, op by op, in double or float: the oracle of
// everything after it.

#include "ir/graph/Graph.h"

#include "llvm/ADT/StringMap.h"

#include <cstdint>
#include <vector>

namespace sluice::graph {

/// A host tensor. Floating-point elements are kept as double (but for f64 already rounded
/// to float when evaluating in single precision), integers and booleans as int64.
struct HostTensor {
  mlir::Type elementType;
  std::vector<int64_t> shape;
  std::vector<double> reals;     // used when the element type is floating point
  std::vector<int64_t> integers; // used otherwise

  static HostTensor zeros(mlir::RankedTensorType type);
  static mlir::FailureOr<HostTensor> fromAttribute(mlir::ElementsAttr attribute);
  bool isReal() const { return mlir::isa<mlir::FloatType>(elementType); }
  int64_t size() const;
};

enum class Precision { Single, Double };

/// Rounds to a type of 16 bits (nearest, ties to even), whatever the precision of the
/// run; other types leave x as it is.
double toNarrow(double x, mlir::Type type);

/// What an op's `evaluate` sees: operands in order (absent optional operands are not
/// listed), results preallocated as zeros of the inferred type.
class Evaluation {
public:
  Evaluation(mlir::Operation *op, llvm::ArrayRef<const HostTensor *> operands,
             llvm::MutableArrayRef<HostTensor> results, Precision precision)
      : op(op), operands(operands), results(results), precision(precision) {}
  const HostTensor &operand(unsigned i) const { return *operands[i]; }
  HostTensor &result(unsigned i) { return results[i]; }
  /// Rounds to float in single precision, but for results that are f64 (called on every
  /// stored real).
  double round(double x) const {
    bool isWide = !results.empty() && results.front().elementType.isF64();
    return precision == Precision::Single && !isWide
               ? static_cast<double>(static_cast<float>(x))
               : x;
  }
  mlir::Operation *op;

private:
  llvm::ArrayRef<const HostTensor *> operands;
  llvm::MutableArrayRef<HostTensor> results;
  Precision precision;
};

/// The named state of a module: symbol -> tensor.
using StateMap = llvm::StringMap<HostTensor>;

/// The initial state of all `graph.parameter` of the module.
mlir::FailureOr<StateMap> initialState(mlir::ModuleOp module);

/// Runs `function` on `inputs`; reads and writes go to `state` (reads see the values from
/// before the run). Errors are emitted at the op that fails.
mlir::FailureOr<std::vector<HostTensor>> interpret(mlir::func::FuncOp function,
                                                   llvm::ArrayRef<HostTensor> inputs,
                                                   StateMap &state, Precision precision);

/// A rank's part in a run of several.
struct RankRun {
  mlir::func::FuncOp function;
  llvm::ArrayRef<HostTensor> inputs;
  StateMap *state = nullptr;
  std::vector<HostTensor> results = {}; ///< of the run
};

/// Runs one function per rank, which meet in their collectives: those of all ranks must
/// be the same, in the same order.
mlir::LogicalResult interpretRanks(llvm::MutableArrayRef<RankRun> ranks,
                                   Precision precision);

} // namespace sluice::graph
