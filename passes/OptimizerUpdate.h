#pragma once
// One optimizer operation per parameter, with the state it keeps.

#include "passes/MomentForm.h"
#include "passes/Penalty.h"
#include "passes/RankShards.h"
#include "passes/StateSymbols.h"

namespace sluice {

/// Builds the update of one parameter at the builder's insertion point, by the options of
/// its group in `graph.groups`.
class OptimizerUpdate {
public:
  /// `momentFormat`: as `precision.optimizer_state`. `finite`: i1, whether the update
  /// changes anything; null: it does.
  OptimizerUpdate(mlir::OpBuilder &builder, StateSymbols &state, EntryReads &reads,
                  graph::ParameterOp parameter, llvm::StringRef momentFormat = "fp32",
                  mlir::Value finite = {});

  /// From the mean gradient; writes the parameter and its state.
  void build(mlir::Value gradient);
  /// The same as `shared` says: of what is shared out to ranks from the own rows.
  void build(mlir::Value gradient, const RankShards &shared) {
    shards = shared;
    build(gradient);
  }
  /// What holds the parameter (continual); `task`: the mean gradient of the loss alone.
  void holdBy(const PenaltySpec &spec, mlir::Value task) {
    penalty = &spec;
    taskGradient = task;
  }
  /// How the update can be shared out to ranks; `reason`: why it cannot.
  RankShards chooseShards(int64_t ranks, std::string &reason) {
    return RankShards::choose(parameter, kind(), form, ranks, state, reason);
  }
  MomentForm momentForm() const { return form; }
  /// Why moments are f32 although the format has fewer bits; else empty. Of single
  /// moments after `build`.
  const std::string &whyWide() const { return wideReason; }

private:
  // Options of the group. Flags are false where they are not given.
  llvm::APFloat number(llvm::StringRef key) const;
  bool flag(llvm::StringRef key) const;
  llvm::StringRef kind() const;

  mlir::Value control(llvm::StringRef name);
  /// Updates the group has taken part in.
  mlir::Value updatesDone();
  /// Hyper-parameters that the next operation gets as controls, by the group's names of
  /// them; "NAME_rest" is 1 - NAME.
  void hyper(llvm::ArrayRef<llvm::StringRef> names);
  mlir::Value constantControl(llvm::StringRef name, double value);
  /// Whether this update changes the parameter (i1).
  mlir::Value applies();
  /// A tensor of state like the parameter (or of `type`) that starts at `fill`; results
  /// of the operation are written to them in the order of these calls.
  mlir::Value keep(llvm::StringRef name, double fill = 0);
  mlir::Value keep(llvm::StringRef name, mlir::RankedTensorType type, double fill = 0);

  mlir::Operation *adamLike(mlir::Value w, mlir::Value g);
  mlir::Operation *other(mlir::Value w, mlir::Value g);
  mlir::Operation *rmsprop(mlir::Value w, mlir::Value g);
  mlir::Operation *adafactor(mlir::Value w, mlir::Value g);
  template <class OpT, class... Args> mlir::Operation *make(Args &&...args) {
    return builder.create<OpT>(parameter.getLoc(), std::forward<Args>(args)...,
                               mlir::ValueRange(hyperValues),
                               builder.getStrArrayAttr(hyperNames));
  }

  mlir::OpBuilder &builder;
  StateSymbols &state;
  EntryReads &reads;
  graph::ParameterOp parameter;
  mlir::Value finite;
  mlir::DictionaryAttr options;
  MomentForm form;
  RankShards shards;
  const PenaltySpec *penalty = nullptr;
  mlir::Value taskGradient;
  std::string wideReason;
  std::vector<StoredMoment> kept;
  llvm::SmallVector<mlir::Value> hyperValues;
  llvm::SmallVector<llvm::StringRef> hyperNames;
};

} // namespace sluice
