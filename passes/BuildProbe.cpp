// Builds @probe: the gradients of a batch as results, with evaluation semantics. Without
// dropout and with running statistics a sample's gradient depends on no other sample, so
// that a batch with one valid sample gives the gradient of that sample, which the
// empirical Fisher needs: the square of a batch's gradient is another thing.

#include "ir/TrainingSpec.h"
#include "passes/EntryFunctions.h"
#include "passes/Passes.h"
#include "passes/ReverseMode.h"
#include "passes/StateSymbols.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_BUILDPROBE
#include "passes/Passes.h.inc"

namespace {

class BuildProbe : public impl::BuildProbeBase<BuildProbe> {
public:
  explicit BuildProbe(const TrainingSpec &spec) : spec(spec) {}

  void runOnOperation() override {
    if (!llvm::is_contained(spec.entries, "probe"))
      return;
    auto forward = getOperation().lookupSymbol<func::FuncOp>("forward");
    if (!forward || !resultNamed(forward, "loss_sum")) {
      getOperation().emitError("'forward' has no loss; run build-loss first");
      return signalPassFailure();
    }
    func::FuncOp entry = copyEntry(forward, "probe");
    keepLossAndLogits(entry);
    eraseDead(entry);
    useEvaluationForms(entry);
    eraseDead(entry);
    ReverseMode reverse(entry);
    if (failed(reverse.run(resultNamed(entry, "loss_sum"))) ||
        failed(addGradients(entry, reverse)))
      signalPassFailure();
  }

private:
  void keepLossAndLogits(func::FuncOp entry) {
    std::vector<NamedValue> kept{{"loss_sum", resultNamed(entry, "loss_sum")},
                                 {"loss_count", resultNamed(entry, "loss_count")}};
    // For labels that are drawn from the model's own distribution.
    auto logits = getOperation()->getAttrOfType<StringAttr>("graph.logits_output");
    if (logits && spec.loss.kind != "output")
      if (Value value = resultNamed(entry, logits.getValue()))
        kept.push_back({logits.getValue().str(), value});
    setResults(entry, kept);
  }

  LogicalResult addGradients(func::FuncOp entry, const ReverseMode &reverse) {
    std::vector<NamedValue> named = results(entry);
    size_t before = named.size();
    for (graph::ParameterOp parameter : StateSymbols(getOperation()).parameters())
      if (Value gradient = reverse.gradients().lookup(parameter.getSymName());
          gradient && parameter.getTrainable())
        named.push_back({"grad/" + modelName(parameter.getSymName()).str(), gradient});
    if (named.size() == before)
      return entry.emitError("the loss depends on no trainable parameter");
    setResults(entry, named);
    return success();
  }

  const TrainingSpec &spec;
};

} // namespace

std::unique_ptr<Pass> createBuildProbe(const TrainingSpec &spec) {
  return std::make_unique<BuildProbe>(spec);
}

} // namespace sluice
