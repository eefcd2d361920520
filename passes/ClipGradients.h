#pragma once
// Norms of mean gradients in double precision: of tensors, of groups and of all. What
// clips by them, and what takes an update for an outlier (docs/gradient-health.md).
//
// State: "scale/norm/mean", "scale/norm/variance" f64 and "scale/norm/count" i64, the
// history of the norm; "scale/norm/outliers" i64, updates that were skipped for it.

#include "ir/TrainingSpec.h"
#include "passes/EntryFunctions.h"
#include "passes/RankShards.h"
#include "passes/StateSymbols.h"

namespace sluice {

/// The mean gradient of a parameter; of what is shared out to ranks the own rows.
struct MeanGradient {
  graph::ParameterOp parameter;
  mlir::Value *value;
  RankShards shards;
};

/// Of one entry. Gradients are in the order of their names, as sums over them.
class GradientClip {
public:
  GradientClip(const TrainingSpec &spec, std::vector<MeanGradient> gradients,
               StateSymbols &state, EntryReads &reads, mlir::OpBuilder &builder);

  /// f32: the largest norm of a tensor's gradient.
  mlir::Value largestNorm();
  /// i1: the update is no outlier. Where `finite` (i1, or null for always) does not hold
  /// nothing is judged.
  mlir::Value isUsual(mlir::Value finite);
  /// Bounds the gradients, if the spec says so.
  void clip();
  /// Writes the history of the norm.
  void remember(mlir::Value finite);
  /// Results of the entry: norms, squares of tensors in the order of their depth, and
  /// what the gradients were multiplied by.
  std::vector<NamedValue> results(mlir::func::FuncOp entry);

private:
  struct Group {
    std::string name;
    std::vector<size_t> members;
    int64_t elements = 0;
  };
  struct History {
    graph::ParameterOp meanState, varianceState, countState;
    mlir::Value mean, variance, count; // f64, f64, i64
    mlir::Value isWarm;                // i1
  };

  graph::GraphBuilder at(llvm::StringRef name);
  mlir::Value isActive(graph::GraphBuilder &b, graph::ParameterOp parameter);
  mlir::Value control(const std::string &symbol, double value);
  void measure();
  void findGroups();
  mlir::Value normOf(graph::GraphBuilder &b, llvm::ArrayRef<size_t> members);
  mlir::Value norm();
  const History &history();
  mlir::Value outlierLimit(graph::GraphBuilder &b);
  void scale(size_t index, mlir::Value factor);
  mlir::Value shrink(graph::GraphBuilder &b, mlir::Value norm, mlir::Value limit);
  void clipGroups();
  void clipUnits();
  mlir::Value clipByHistory(graph::GraphBuilder &b);

  const TrainingSpec &spec;
  std::vector<MeanGradient> gradients;
  StateSymbols &state;
  EntryReads &reads;
  mlir::OpBuilder &builder;
  std::vector<mlir::Value> squares; // f64, by gradient; frozen ones have 0
  std::vector<Group> groups;
  mlir::Value total, clipped, outlier; // f64 norms; i1
  std::optional<History> past;
  std::vector<NamedValue> factors;
};

/// What a bound by unit (`clip: {kind: agc}`) counts as one: notes on each parameter the
/// dimensions that its use in @forward sums over. Fails where a pattern of `clip.exclude`
/// matches nothing.
mlir::LogicalResult markClipUnits(mlir::ModuleOp module, const ClipSpec &clip);

} // namespace sluice
