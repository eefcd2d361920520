// Adds the labels and the loss to @forward. Here, before entries part, because step and
// eval share the loss, and because the batch must be known to whatever is keyed by
// sample.

#include "ir/TrainingSpec.h"
#include "passes/EntryFunctions.h"
#include "passes/InputBounds.h"
#include "passes/LossKinds.h"
#include "passes/Passes.h"
#include "passes/StateSymbols.h"

using namespace mlir;

namespace sluice {
#define GEN_PASS_DEF_BUILDLOSS
#include "passes/Passes.h.inc"

namespace {

/// An error of the spec: it has no place in the model.
InFlightDiagnostic specError(func::FuncOp forward) {
  return emitError(UnknownLoc::get(forward.getContext()));
}

/// The model's outputs, the first few of many.
std::string outputNames(func::FuncOp forward) {
  constexpr unsigned shown = 8;
  std::string names;
  for (unsigned i = 0; i < std::min(forward.getNumResults(), shown); ++i)
    names += (i ? ", '" : "'") + resultName(forward, i).str() + "'";
  if (forward.getNumResults() > shown)
    names += " and " + std::to_string(forward.getNumResults() - shown) + " more";
  return names;
}

/// The model output the loss is taken of: its name, checked, or the only one there is.
FailureOr<std::string> lossOutput(func::FuncOp forward, const LossSpec &loss) {
  const std::string &asked = loss.kind == "output" ? loss.name : loss.logits;
  const char *key = loss.kind == "output" ? "loss.name" : "loss.logits";
  if (asked.empty() && forward.getNumResults() == 1)
    return resultName(forward, 0).str();
  if (!asked.empty() && resultNamed(forward, asked))
    return asked;
  InFlightDiagnostic error = specError(forward);
  error << "'" << key << "' is ";
  if (asked.empty())
    error << "missing";
  else
    error << "'" << asked << "'";
  return error << ", expected an output of the model: " << outputNames(forward);
}

/// Samples per micro-batch: what the import said, else dimension 0 of the first input
/// that has one.
int64_t batchOf(func::FuncOp forward) {
  auto module = forward->getParentOfType<ModuleOp>();
  if (auto batch = module->getAttrOfType<IntegerAttr>("graph.batch"))
    return batch.getInt();
  int64_t batch = 0;
  for (unsigned i = 0; i < forward.getNumArguments(); ++i) {
    auto type = cast<RankedTensorType>(forward.getArgument(i).getType());
    if (type.getRank() == 0)
      continue;
    if (forward.getArgAttr(i, "graph.batched"))
      return type.getDimSize(0);
    batch = batch ? batch : type.getDimSize(0);
  }
  return std::max<int64_t>(batch, 1);
}

/// Marks the inputs whose dimension 0 counts samples, unless the import did.
void markBatched(func::FuncOp forward, int64_t batch) {
  for (unsigned i = 0; i < forward.getNumArguments(); ++i)
    if (forward.getArgAttr(i, "graph.batched"))
      return;
  for (unsigned i = 0; i < forward.getNumArguments(); ++i) {
    auto type = cast<RankedTensorType>(forward.getArgument(i).getType());
    if (type.getRank() > 0 && type.getDimSize(0) == batch)
      forward.setArgAttr(i, "graph.batched", UnitAttr::get(forward.getContext()));
  }
}

class BuildLoss : public impl::BuildLossBase<BuildLoss> {
public:
  explicit BuildLoss(const TrainingSpec &spec) : spec(spec), loss(spec.loss) {}

  void runOnOperation() override {
    forward = getOperation().lookupSymbol<func::FuncOp>("forward");
    if (!forward) {
      getOperation().emitError("the module has no function 'forward' to train");
      return signalPassFailure();
    }
    describeInputs();
    bool needed =
        llvm::any_of(spec.entries, [](const std::string &e) { return e != "infer"; });
    if (needed && failed(addLoss()))
      signalPassFailure();
  }

private:
  void describeInputs() {
    layout.batch = batchOf(forward);
    Builder builder(forward.getContext());
    getOperation()->setAttr("graph.batch", builder.getI64IntegerAttr(layout.batch));
    markBatched(forward, layout.batch);
    boundIndexInputs(forward);
    tellSamples();
  }

  /// Random numbers are keyed by sample, and batch statistics leave padding out.
  void tellSamples() {
    StateSymbols state(getOperation());
    EntryReads reads(forward, state);
    auto rowsPerSample = [&](Value x) -> int64_t { // 0: dimension 0 holds no samples
      auto type = graph::tensorType(x);
      bool holds = type.getRank() > 0 && type.getDimSize(0) % layout.batch == 0;
      return holds ? type.getDimSize(0) / layout.batch : 0;
    };
    forward.walk([&](graph::DropoutOp op) {
      if (rowsPerSample(op.getX()) > 0)
        op.setSamples(layout.batch);
    });
    forward.walk([&](graph::BatchNormTrainOp op) {
      OpBuilder builder(op);
      graph::GraphBuilder b(op.getLoc(), builder);
      Value valid = reads.control("control/valid", builder.getI64Type());
      if (int64_t rows = rowsPerSample(op.getX()))
        op.getValidMutable().assign(b.scale(valid, rows));
    });
  }

  LogicalResult addLoss() {
    if (!isLossKind(loss.kind))
      return specError(forward)
             << (loss.kind.empty() ? "the spec has no 'loss'"
                                   : "'loss.kind' is '" + loss.kind + "'")
             << ", expected cross_entropy, nll, mse, l1, huber, kl, bce_with_logits, sum "
                "or "
                "output of one of "
             << outputNames(forward);
    auto output = lossOutput(forward, loss);
    if (failed(output))
      return failure();
    Value prediction = resultNamed(forward, *output);
    auto type = graph::tensorType(prediction);
    if (!isa<FloatType>(type.getElementType()))
      return specError(forward) << "output '" << *output << "' has type " << type
                                << ", expected floating point for the loss";
    // The model's own loss may be a scalar; all others have rows of samples.
    bool scalar = loss.kind == "output" && type.getNumElements() == 1;
    if (!scalar && (type.getRank() == 0 || type.getDimSize(0) % layout.batch != 0))
      return specError(forward) << "output '" << *output << "' has type " << type
                                << ", expected dimension 0 to hold the " << layout.batch
                                << " samples of the micro-batch";
    layout.rowsPerSample = scalar ? 1 : type.getDimSize(0) / layout.batch;
    Value target;
    if (hasTarget(loss.kind) && failed(addTarget(type, target)))
      return failure();
    build(prediction, target);
    describe(*output, type);
    return success();
  }

  LogicalResult addTarget(RankedTensorType prediction, Value &target) {
    for (unsigned i = 0; i < forward.getNumArguments(); ++i)
      if (argumentName(forward, i) == loss.labels)
        return specError(forward) << "the model has an input '" << loss.labels
                                  << "'; choose another name for 'loss.labels'";
    auto described =
        lossTarget(loss, prediction, layout, [&] { return specError(forward); });
    if (failed(described))
      return failure();
    Builder builder(forward.getContext());
    NamedAttrList attributes;
    attributes.set("graph.name", builder.getStringAttr(loss.labels));
    attributes.set("graph.batched", builder.getUnitAttr());
    if (described->bounds)
      attributes.set("graph.bounds",
                     builder.getDenseI64ArrayAttr(
                         {described->bounds->first, described->bounds->second}));
    if (described->ignored)
      attributes.set("graph.ignored", builder.getI64IntegerAttr(*described->ignored));
    unsigned index = forward.getNumArguments();
    forward.insertArgument(index, described->type,
                           attributes.getDictionary(forward.getContext()),
                           NameLoc::get(builder.getStringAttr(loss.labels)));
    target = forward.getArgument(index);
    return success();
  }

  void build(Value prediction, Value target) {
    StateSymbols state(getOperation());
    EntryReads reads(forward, state);
    OpBuilder builder(returnOf(forward));
    Value valid = reads.control("control/valid", builder.getI64Type());
    graph::GraphBuilder b(NameLoc::get(builder.getStringAttr("loss")), builder);
    LossValue value = buildLoss(b, loss, prediction, target, valid, layout);
    std::vector<NamedValue> named{{"loss_sum", value.sum}, {"loss_count", value.count}};
    for (NamedValue &result : results(forward))
      named.push_back(std::move(result));
    setResults(forward, named);
  }

  /// Attributes for the stages after this one, and the report's lines.
  void describe(const std::string &output, RankedTensorType type) {
    ModuleOp module = getOperation();
    Builder builder(module.getContext());
    module->setAttr("graph.loss_kind", builder.getStringAttr(loss.kind));
    module->setAttr("graph.logits_output", builder.getStringAttr(output));
    if (hasTarget(loss.kind))
      module->setAttr("graph.labels_input", builder.getStringAttr(loss.labels));
    std::string line = "loss: " + loss.kind + " of '" + output + "'";
    if (hasTarget(loss.kind))
      line += " against '" + loss.labels + "'";
    if (loss.kind == "cross_entropy" || loss.kind == "nll")
      line +=
          ", classes along dimension " + std::to_string(classAxis(loss, type.getRank()));
    if (loss.kind == "sum")
      line += "; a micro-batch counts as 1";
    report(module, line);
    reportFullBatches(module, type);
  }

  /// A loss inside the model has mixed the samples: padding cannot be masked out
  /// afterwards.
  void reportFullBatches(ModuleOp module, RankedTensorType type) {
    if (loss.kind != "output" || type.getNumElements() != 1)
      return;
    module->setAttr("graph.full_batches", UnitAttr::get(module.getContext()));
    report(module,
           "padding: the model's own loss would count padding, so every micro-batch "
           "must be full");
  }

  const TrainingSpec &spec;
  const LossSpec &loss;
  func::FuncOp forward;
  SampleLayout layout;
};

} // namespace

std::unique_ptr<Pass> createBuildLoss(const TrainingSpec &spec) {
  return std::make_unique<BuildLoss>(spec);
}

} // namespace sluice
