// Builds @fisher: for each parameter that trains the sum over the samples of a batch of
// the squared gradient of each sample's loss, with evaluation semantics. The square of a
// batch's gradient is another thing, and wrong by the size of the batch.

#include "ir/TrainingSpec.h"
#include "ir/graph/GraphBuilder.h"
#include "passes/DecomposeComposites.h"
#include "passes/EntryFunctions.h"
#include "passes/FisherLabels.h"
#include "passes/Passes.h"
#include "passes/ReverseMode.h"
#include "passes/SampleGradients.h"
#include "passes/StateSymbols.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_BUILDFISHER
#include "passes/Passes.h.inc"

namespace {

class BuildFisher : public impl::BuildFisherBase<BuildFisher> {
public:
  explicit BuildFisher(const TrainingSpec &spec) : spec(spec) {}

  void runOnOperation() override {
    if (spec.penalty.kind != "ewc" || !llvm::is_contained(spec.entries, "step"))
      return;
    auto forward = getOperation().lookupSymbol<func::FuncOp>("forward");
    if (!forward || !resultNamed(forward, "loss_sum")) {
      getOperation().emitError("'forward' has no loss; run build-loss first");
      return signalPassFailure();
    }
    std::string reason;
    if (failed(buildTogether(forward, reason)) && failed(buildOneByOne(forward, reason)))
      signalPassFailure();
  }

private:
  /// The forward part with evaluation semantics, and where gradients begin.
  struct Start {
    func::FuncOp entry;
    Value loss, cotangent;
  };

  FailureOr<Start> start(func::FuncOp forward, bool decomposes) {
    Start made{copyEntry(forward, "fisher"), {}, {}};
    useEvaluationForms(made.entry);
    StateSymbols state(getOperation());
    FisherLabels labels(made.entry, spec, state);
    if (failed(labels.replace()) ||
        (decomposes && failed(decomposeComposites(made.entry))))
      return failure();
    made.loss = resultNamed(made.entry, "loss_sum");
    if (failed(labels.weigh(made.loss, made.cotangent)))
      return failure();
    setResults(made.entry, {{"loss_sum", resultNamed(made.entry, "loss_sum")},
                            {"loss_count", resultNamed(made.entry, "loss_count")}});
    return made;
  }

  LogicalResult buildTogether(func::FuncOp forward, std::string &reason) {
    auto made = start(forward, /*decomposes=*/true);
    if (failed(made))
      return failure();
    auto batch = getOperation()->getAttrOfType<IntegerAttr>("graph.batch").getInt();
    SampleGradients gradients(made->entry, batch);
    if (failed(gradients.run(made->loss, made->cotangent))) {
      reason = gradients.reason;
      made->entry.erase();
      return failure();
    }
    llvm::StringMap<Value> squares;
    for (auto &[symbol, square] : gradients.squares())
      squares[symbol] = square;
    return addSquares(made->entry, squares);
  }

  LogicalResult buildOneByOne(func::FuncOp forward, const std::string &reason) {
    if (reason.empty())
      return failure(); // after an error
    auto made = start(forward, /*decomposes=*/false);
    if (failed(made))
      return failure();
    ReverseMode reverse(made->entry);
    if (failed(reverse.run(made->loss, made->cotangent)))
      return failure();
    getOperation()->setAttr("graph.fisher_one_by_one", UnitAttr::get(&getContext()));
    report(getOperation(),
           "ewc: the program 'fisher' takes one sample at a time, since " + reason);
    OpBuilder builder(returnOf(made->entry));
    llvm::StringMap<Value> squares;
    for (auto &entry : reverse.gradients()) {
      graph::GraphBuilder b(entry.second.getLoc(), builder);
      squares[entry.first()] = b.square(entry.second);
    }
    return addSquares(made->entry, squares);
  }

  LogicalResult addSquares(func::FuncOp entry, const llvm::StringMap<Value> &squares) {
    std::vector<NamedValue> named = results(entry);
    for (graph::ParameterOp parameter : StateSymbols(getOperation()).parameters())
      if (Value square = squares.lookup(parameter.getSymName());
          square && parameter.getTrainable())
        named.push_back({"fisher/" + modelName(parameter.getSymName()).str(), square});
    if (named.size() == 2)
      return entry.emitError("the loss depends on no trainable parameter");
    setResults(entry, named);
    eraseDead(entry);
    return success();
  }

  const TrainingSpec &spec;
};

} // namespace

std::unique_ptr<Pass> createBuildFisher(const TrainingSpec &spec) {
  return std::make_unique<BuildFisher>(spec);
}

} // namespace sluice
