// Builds what evaluates: @eval (loss and logits) and @infer (the model's outputs), from
// @forward, which was left as imported for this. Then every entry drops the inputs it
// does not need.

#include "ir/TrainingSpec.h"
#include "passes/EntryFunctions.h"
#include "passes/PadInputs.h"
#include "passes/Passes.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_BUILDENTRIES
#include "passes/Passes.h.inc"

namespace {

class BuildEntries : public impl::BuildEntriesBase<BuildEntries> {
public:
  explicit BuildEntries(const TrainingSpec &spec) : spec(spec) {}

  void runOnOperation() override {
    auto forward = getOperation().lookupSymbol<func::FuncOp>("forward");
    if (!forward) {
      getOperation().emitError("the module has no function 'forward'");
      return signalPassFailure();
    }
    if (llvm::is_contained(spec.entries, "eval"))
      buildEntry(forward, "eval");
    if (llvm::is_contained(spec.entries, "infer"))
      buildEntry(forward, "infer");
    forward.erase();
    for (auto entry : getOperation().getOps<func::FuncOp>())
      eraseDead(entry);
    if (failed(markFilled(getOperation(), spec)))
      signalPassFailure();
  }

private:
  void buildEntry(func::FuncOp forward, StringRef name) {
    func::FuncOp entry = copyEntry(forward, name);
    std::vector<NamedValue> kept;
    for (const NamedValue &result : results(entry))
      if (name == "eval" ? inEval(result.name) : inInfer(entry, result.name))
        kept.push_back(result);
    setResults(entry, kept);
    eraseDead(entry);
    useEvaluationForms(entry);
  }

  static bool isLoss(StringRef name) {
    return name == "loss_sum" || name == "loss_count";
  }

  /// The loss and what metrics are computed from; a model with its own loss gives all its
  /// other outputs.
  bool inEval(StringRef name) {
    if (isLoss(name))
      return true;
    auto output = getOperation()->getAttrOfType<StringAttr>("graph.logits_output");
    bool own = spec.loss.kind == "output";
    return output && (name == output.getValue()) != own;
  }

  /// The model's outputs, without a loss that would ask for labels.
  bool inInfer(func::FuncOp entry, StringRef name) {
    bool ownLoss = spec.loss.kind == "output" && name == spec.loss.name;
    bool others = false;
    for (const NamedValue &result : results(entry))
      others |= !isLoss(result.name) && result.name != spec.loss.name;
    return !isLoss(name) && !(ownLoss && others);
  }

  const TrainingSpec &spec;
};

} // namespace

std::unique_ptr<Pass> createBuildEntries(const TrainingSpec &spec) {
  return std::make_unique<BuildEntries>(spec);
}

} // namespace sluice
