#pragma once
// Builds one plan.program while its function is walked: which bytes each value lies in,
// and the launches.

#include "ir/graph/Graph.h"
#include "ir/plan/Plan.h"
#include "passes/ElasticRegion.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"

#include <string>
#include <vector>

namespace sluice {

/// Kernels and constants that the programs of a module share.
class PlanSymbols {
public:
  explicit PlanSymbols(mlir::ModuleOp module) : module(module) {}

  /// The hand-written kernel of this name.
  mlir::FlatSymbolRefAttr builtin(llvm::StringRef name);
  /// The kernel generated from `region`; equal regions are one kernel. `scratch`: bytes
  /// for each worker.
  mlir::FlatSymbolRefAttr generated(graph::RegionOp region, int64_t scratch);
  /// The kernel of the region's elastic form, with its results in the order `outputs`.
  mlir::FlatSymbolRefAttr elastic(graph::RegionOp region,
                                  llvm::ArrayRef<unsigned> outputs, ElasticForm &form);
  /// The state tensor that holds a constant; equal constants are one.
  mlir::FlatSymbolRefAttr constant(graph::ConstantOp op);
  /// Appends a state tensor behind the others.
  void appendState(plan::StateOp state);

private:
  /// A kernel without a body or a name yet.
  plan::KernelOp addKernel(mlir::Location loc, int64_t scratch);
  /// Names the kernel, or erases it where there is an equal one.
  mlir::FlatSymbolRefAttr unique(plan::KernelOp kernel);

  mlir::ModuleOp module;
  llvm::StringMap<mlir::FlatSymbolRefAttr> generatedByText;
  llvm::DenseMap<mlir::Attribute, mlir::FlatSymbolRefAttr> constants;
  int64_t nextKernel = 0;
};

/// One call of a kernel, as the lowerings describe it.
struct StageSpec {
  mlir::FlatSymbolRefAttr kernel;
  llvm::SmallVector<mlir::Value> ins, outs; // buffers
  int64_t scratchBytes = 0;                 // of each worker
  std::vector<int64_t> params;
  llvm::SmallVector<int64_t> inPlace; // pairs (input, output) that may share bytes
};

struct LaunchSpec {
  std::string label; // what it computes
  int64_t units = 1, chunk = 1;
  double flops = 0;
  std::string node = {}; // empty: the nodes of the operation's location
  double untouched = 0;  // bytes of the operands that it neither reads nor writes
};

/// Element (i, j, ...) of a value lies at root + offset + i * strides[0] + j * strides[1]
/// + ..., in elements.
struct StridedView {
  mlir::Value root;
  int64_t offset = 0;
  llvm::SmallVector<int64_t> strides;
};

class ProgramBuilder {
public:
  ProgramBuilder(PlanSymbols &symbols, plan::ProgramOp program, int64_t threads);

  PlanSymbols &symbols;

  /// Threads that the plan is made for.
  int64_t workers() const { return threads; }
  /// Bytes of the step reservation.
  mlir::Value buffer(llvm::StringRef label, llvm::StringRef category, int64_t bytes);
  /// The same, for the values of a tensor.
  mlir::Value buffer(llvm::StringRef label, llvm::StringRef category, mlir::Type tensor);
  mlir::Value stateBuffer(mlir::FlatSymbolRefAttr symbol);
  mlir::Value slice(mlir::Value source, int64_t offset, int64_t bytes);

  /// The bytes that hold a value; null before it was bound.
  mlir::Value find(mlir::Value value) const { return buffers.lookup(value); }
  /// The same; views that were put off are lowered now. What cannot be lowered has bytes
  /// all the same, so that its readers can report their own problems.
  mlir::Value bufferOf(mlir::Value value);
  void bind(mlir::Value value, mlir::Value buffer) { buffers[value] = buffer; }
  /// The value was written through a view of the result of what uses it.
  void markWritten(mlir::Value value) { written.insert(value); }
  bool isWritten(mlir::Value value) const { return written.contains(value); }
  /// What was written through that view is read through it too.
  void place(mlir::Value value, const StridedView &view) { placed[value] = view; }
  /// Null for values that are not placed in others.
  const StridedView *placeOf(mlir::Value value) const {
    auto found = placed.find(value);
    return found == placed.end() ? nullptr : &found->second;
  }
  /// Where an operation is to write its result: what it was bound to before, else new
  /// bytes.
  mlir::Value destination(mlir::Value result);

  plan::LaunchOp launch(mlir::Operation *op, const LaunchSpec &spec,
                        llvm::ArrayRef<StageSpec> stages);
  plan::LaunchOp launch(mlir::Operation *op, const LaunchSpec &spec,
                        const StageSpec &stage) {
    return launch(op, spec, llvm::ArrayRef(stage));
  }
  /// A copy of all bytes of `from` to `to`.
  void copy(mlir::Operation *op, mlir::Value from, mlir::Value to, int64_t elements,
            int64_t elementBytes);

  bool failedViews = false; // some view that was put off could not be lowered
  plan::ProgramOp program;
  mlir::OpBuilder storage;  // inserts before the queue
  mlir::OpBuilder launches; // inserts at the end of the queue

private:
  void stage(mlir::Location loc, const StageSpec &spec);

  int64_t threads;
  llvm::DenseMap<mlir::Value, mlir::Value> buffers;
  llvm::DenseSet<mlir::Value> written;
  llvm::DenseMap<mlir::Value, StridedView> placed;
  llvm::StringMap<mlir::Value> states;
};

/// Text that is equal for regions which are the same kernel: no locations, no names of
/// values.
std::string kernelText(graph::RegionOp region);

/// The names of the model's nodes in a location, joined by "+"; at most four.
std::string nodeNames(mlir::Location loc);

/// Of the node that computes a value; inside a region of the one whose value it yields.
std::string valueNames(mlir::Value value);

/// Marks the k-th run more of an operation, from 1; then its launch and its buffers.
inline constexpr llvm::StringLiteral recomputeAttr = "recompute";
/// On buffers that hold values of one type: it.
inline constexpr llvm::StringLiteral elementAttr = "plan.element";

} // namespace sluice
