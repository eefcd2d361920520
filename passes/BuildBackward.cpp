// Copies @forward to the entry that trains and adds the gradients of the trainable
// parameters as results `grad/NAME`.

#include "ir/TrainingSpec.h"
#include "passes/EntryFunctions.h"
#include "passes/LossScale.h"
#include "passes/Passes.h"
#include "passes/ReverseMode.h"
#include "passes/SavedValues.h"
#include "passes/StateSymbols.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_BUILDBACKWARD
#include "passes/Passes.h.inc"

namespace {

class BuildBackward : public impl::BuildBackwardBase<BuildBackward> {
public:
  explicit BuildBackward(const TrainingSpec &spec) : spec(spec) {}

  void runOnOperation() override {
    if (!llvm::is_contained(spec.entries, "step"))
      return;
    auto forward = getOperation().lookupSymbol<func::FuncOp>("forward");
    if (!forward || !resultNamed(forward, "loss_sum")) {
      getOperation().emitError("'forward' has no loss; run build-loss first");
      return signalPassFailure();
    }
    auto entry = copyEntry(forward, spec.addsGradients() ? "micro" : "step");
    StateSymbols state(getOperation());
    EntryReads reads(entry, state);
    Builder builder(&getContext());
    Value scale = readLossScale(spec.lossScale, state, reads, builder);
    ReverseMode reverse(entry);
    llvm::DenseSet<Operation *> forwardOps;
    for (Operation &op : entry.getBody().front())
      forwardOps.insert(&op);
    if (failed(reverse.run(resultNamed(entry, "loss_sum"), scale)))
      return signalPassFailure();
    if (llvm::any_of(spec.precision.rules,
                     [](const StorageRule &rule) { return !rule.saved.empty(); }))
      markBackward(entry, forwardOps);
    // After the gradients, so that the statistics' own operations are not differentiated.
    recordStatistics(entry);
    if (failed(addResults(entry, reverse)))
      signalPassFailure();
  }

private:
  /// For AssignStorage, which takes the marks away.
  static void markBackward(func::FuncOp entry,
                           const llvm::DenseSet<Operation *> &forwardOps) {
    for (Operation &op : entry.getBody().front())
      if (!forwardOps.contains(&op))
        op.setAttr(backwardAttr, UnitAttr::get(op.getContext()));
  }

  void recordStatistics(func::FuncOp entry) {
    OpBuilder builder(returnOf(entry));
    SmallVector<graph::TrainingMode> recording;
    entry.walk([&](graph::TrainingMode op) { recording.push_back(op); });
    for (graph::TrainingMode op : recording)
      op.recordStatistics(builder);
  }

  LogicalResult addResults(func::FuncOp entry, const ReverseMode &reverse) {
    std::vector<NamedValue> named{{"loss_sum", resultNamed(entry, "loss_sum")},
                                  {"loss_count", resultNamed(entry, "loss_count")}};
    StateSymbols state(getOperation());
    for (graph::ParameterOp parameter : state.parameters()) {
      if (!parameter.getTrainable())
        continue;
      StringRef name = modelName(parameter.getSymName());
      if (Value gradient = reverse.gradients().lookup(parameter.getSymName())) {
        named.push_back({"grad/" + name.str(), gradient});
        continue;
      }
      // As PyTorch: a parameter without a gradient is left alone, by decay too.
      parameter.setTrainable(false);
      leaveGroup(parameter);
      report(getOperation(), "gradients: '" + name.str() +
                                 "' does not influence the loss and is not trained");
    }
    if (named.size() == 2)
      return entry.emitError("the loss depends on no trainable parameter");
    setResults(entry, named);
    return success();
  }

  void leaveGroup(graph::ParameterOp parameter) {
    parameter.removeGroupAttr();
    ModuleOp module = getOperation();
    Builder builder(module.getContext());
    auto groups = module->getAttrOfType<ArrayAttr>("graph.groups");
    if (!groups)
      return;
    SmallVector<Attribute> kept;
    for (auto group : groups.getAsRange<DictionaryAttr>()) {
      SmallVector<Attribute> members;
      for (auto member : group.getAs<ArrayAttr>("members").getAsRange<StringAttr>())
        if (member.getValue() != parameter.getSymName())
          members.push_back(member);
      NamedAttrList attributes(group);
      attributes.set("members", builder.getArrayAttr(members));
      if (!members.empty())
        kept.push_back(attributes.getDictionary(module.getContext()));
    }
    module->setAttr("graph.groups", builder.getArrayAttr(kept));
  }

  const TrainingSpec &spec;
};

} // namespace

std::unique_ptr<Pass> createBuildBackward(const TrainingSpec &spec) {
  return std::make_unique<BuildBackward>(spec);
}

} // namespace sluice
