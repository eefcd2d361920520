#pragma once
// The recompute problem of an entry that trains (planning/Recompute.h), and the way back:
// a solution's clones in the entry.

#include "ir/graph/Graph.h"
#include "passes/planning/CostModel.h"
#include "passes/planning/Recompute.h"

#include "llvm/ADT/DenseMap.h"

#include <string>
#include <vector>

namespace sluice {

/// @step, or @micro under accumulation; null where nothing trains.
mlir::func::FuncOp trainingEntry(mlir::ModuleOp module);

class StepProblem {
public:
  /// `entry` consists of regions and what has its own kernels, and has the result
  /// `loss_sum`. Its operations are put in the order of the problem: what the loss
  /// depends on, then the rest, in which what leads to nothing but the state runs as soon
  /// as it can, so that gradients die early. `keep`: globs of names of the model.
  StepProblem(mlir::func::FuncOp entry, llvm::ArrayRef<std::string> keep);

  RecomputeProblem problem;

  /// As in the problem.
  llvm::ArrayRef<mlir::Operation *> operations() const { return ops; }
  /// True for what only renames bytes, and is no operation of the problem.
  bool isRenaming(mlir::Operation *op) const { return views.contains(op); }
  /// Of the value whose bytes `value` reads; -1 if it is none of the problem.
  int32_t indexOf(mlir::Value value) const;
  /// The value whose bytes are read.
  mlir::Value rootOf(mlir::Value value) const;

  /// Empty unless a glob of `keep` names nothing in the entry.
  std::string keepError() const;
  /// The runs that a solution adds and the values it keeps: subject, why.
  std::vector<std::pair<std::string, std::string>>
  decisions(const RecomputeSolution &solution) const;

  /// Nodes of the model, joined by "+".
  std::string valueName(int32_t value) const;
  mlir::MLIRContext *context() const { return entry->getContext(); }

  /// Writes a solution of `problem` into the entry, once, and what it makes of each value
  /// (TensorFacts.h). Results of regions that a clone need not have are dropped.
  void apply(const RecomputeSolution &solution);

private:
  void collectViews(mlir::Block &block);
  std::vector<mlir::Operation *> forwardFirst(mlir::Block &block);
  void addOp(mlir::Operation *op, bool backward);
  int32_t valueOf(mlir::Value root);
  void markStateAndResults();
  void markKept(llvm::ArrayRef<std::string> keep);
  mlir::Value current(mlir::Value value);
  void runFirst(int32_t op);
  void runAgain(int32_t op);

  mlir::func::FuncOp entry;
  DeviceRates rates;
  std::vector<mlir::Operation *> ops;
  std::vector<mlir::Value> roots; // by value of the problem
  llvm::DenseMap<mlir::Value, int32_t> indices;
  llvm::DenseMap<mlir::Operation *, char> views; // what only renames bytes
  // Results of one operation that lie side by side -> the first of them, with its bytes.
  llvm::DenseMap<mlir::Value, mlir::Value> joined;
  llvm::DenseMap<mlir::Value, int64_t> joinedBytes;
  llvm::DenseMap<mlir::Value, std::vector<mlir::Operation *>> viewsOf; // by root

  std::vector<std::string> unmatchedKeeps;

  // While a solution is applied.
  std::vector<llvm::SmallVector<mlir::Value>> operands; // of each operation, originally
  std::vector<int64_t> clones;                          // of each operation so far
  llvm::DenseMap<mlir::Value, mlir::Value> latest;      // root -> its latest instance
  llvm::DenseMap<std::pair<mlir::Value, mlir::Value>, mlir::Value> viewClones;
  std::vector<graph::RegionOp> clonedRegions;
};

} // namespace sluice
