// Adds the labels and the loss to @forward. Here, before entries part, because step and
// eval share the loss, and because the batch must be known to whatever is keyed by
// sample.

#include "ir/TrainingSpec.h"
#include "passes/EntryFunctions.h"
#include "passes/InputBounds.h"
#include "passes/LossKinds.h"
#include "passes/Passes.h"
#include "passes/ReplayShare.h"
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
FailureOr<std::string> lossOutput(func::FuncOp forward, const std::string &key,
                                  const std::string &asked) {
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
             << ", expected " << lossKindList << " of one of " << outputNames(forward);
    std::vector<std::pair<std::string, std::string>> asked{{"loss.logits", loss.logits}};
    if (loss.kind == "output")
      asked = {{"loss.name", loss.name}};
    if (loss.kind == "triplet")
      asked = {{"loss.anchor", loss.anchor},
               {"loss.positive", loss.positive},
               {"loss.negative", loss.negative}};
    LossOperands operands;
    std::string first;
    for (auto &[key, name] : asked) {
      auto output = lossOutput(forward, key, name);
      if (failed(output) || failed(checkOutput(*output)))
        return failure();
      operands.predictions.push_back(resultNamed(forward, *output));
      first = first.empty() ? *output : first;
    }
    auto type = graph::tensorType(operands.predictions[0]);
    if (failed(checkTriplet(operands)) || failed(addInputs(type, operands)))
      return failure();
    build(operands);
    describe(first, type);
    return describeReplay(getOperation(), spec.replay, layout.batch);
  }

  /// The type is one a loss can be taken of; sets the layout of samples.
  LogicalResult checkOutput(const std::string &output) {
    auto type = graph::tensorType(resultNamed(forward, output));
    if (!isa<FloatType>(type.getElementType()))
      return specError(forward) << "output '" << output << "' has type " << type
                                << ", expected floating point for the loss";
    if (loss.kind == "ctc") {
      int64_t samples = 1 - loss.timeAxis;
      if (type.getRank() == 3 && type.getDimSize(samples) != layout.batch)
        return specError(forward) << "output '" << output << "' has type " << type
                                  << ", expected dimension " << samples << " to hold the "
                                  << layout.batch << " samples of the micro-batch; check "
                                  << "'loss.time_axis'";
      return success();
    }
    // The model's own loss may be a scalar; all others have rows of samples.
    bool scalar = loss.kind == "output" && type.getNumElements() == 1;
    if (!scalar && (type.getRank() == 0 || type.getDimSize(0) % layout.batch != 0))
      return specError(forward) << "output '" << output << "' has type " << type
                                << ", expected dimension 0 to hold the " << layout.batch
                                << " samples of the micro-batch";
    layout.rowsPerSample = scalar ? 1 : type.getDimSize(0) / layout.batch;
    return success();
  }

  LogicalResult checkTriplet(const LossOperands &operands) {
    auto type = graph::tensorType(operands.predictions[0]);
    for (Value other : operands.predictions)
      if (other.getType() != type)
        return specError(forward)
               << "'triplet' compares outputs of types " << type << " and "
               << other.getType() << ", expected the same type";
    if (loss.kind == "triplet" && type.getRank() < 2)
      return specError(forward) << "'triplet' needs a row of features per sample, the "
                                << "anchor has type " << type;
    return success();
  }

  LogicalResult addInputs(RankedTensorType prediction, LossOperands &operands) {
    auto inputs =
        lossInputs(loss, prediction, layout, [&] { return specError(forward); });
    if (failed(inputs))
      return failure();
    for (const LossInput &input : *inputs) {
      for (unsigned i = 0; i < forward.getNumArguments(); ++i)
        if (argumentName(forward, i) == input.name)
          return specError(forward)
                 << "the model has an input '" << input.name
                 << "'; choose another name for "
                 << (input.name == loss.labels ? "'loss.labels'" : "it in 'loss'");
      operands.targets.push_back(addInput(input));
    }
    return spec.replay.isWeighted() ? addReplayInputs(prediction, operands) : success();
  }

  /// Weights by sample. What evaluates has none of these: there a sample counts once, and
  /// no logits are held.
  LogicalResult addReplayInputs(RankedTensorType prediction, LossOperands &operands) {
    auto add = [&](StringRef name, RankedTensorType type, double inEvaluation) {
      LossInput input;
      input.name = name.str();
      input.type = type;
      Value added = addInput(input);
      forward.setArgAttr(cast<BlockArgument>(added).getArgNumber(), evaluationFillAttr,
                         Builder(forward.getContext()).getF64FloatAttr(inEvaluation));
      return added;
    };
    auto perSample = RankedTensorType::get(layout.batch, Float32Type::get(&getContext()));
    operands.weight = add("replay/weight", perSample, 1);
    if (!spec.replay.hasLogits())
      return success();
    if (layout.rowsPerSample != 1)
      return specError(forward)
             << "'continual.replay.derpp' needs one row of logits per sample, '"
             << loss.logits << "' has " << layout.rowsPerSample;
    operands.match = add("replay/match", perSample, 0);
    operands.logits = add("replay/logits", prediction, 0);
    return success();
  }

  Value addInput(const LossInput &input) {
    Builder builder(forward.getContext());
    NamedAttrList attributes;
    attributes.set("graph.name", builder.getStringAttr(input.name));
    attributes.set("graph.batched", builder.getUnitAttr());
    if (input.bounds)
      attributes.set("graph.bounds", builder.getDenseI64ArrayAttr(
                                         {input.bounds->first, input.bounds->second}));
    if (input.ignored)
      attributes.set("graph.ignored", builder.getI64IntegerAttr(*input.ignored));
    unsigned index = forward.getNumArguments();
    forward.insertArgument(index, input.type,
                           attributes.getDictionary(forward.getContext()),
                           NameLoc::get(builder.getStringAttr(input.name)));
    return forward.getArgument(index);
  }

  void build(LossOperands operands) {
    StateSymbols state(getOperation());
    EntryReads reads(forward, state);
    OpBuilder builder(returnOf(forward));
    operands.valid = reads.control("control/valid", builder.getI64Type());
    graph::GraphBuilder b(NameLoc::get(builder.getStringAttr("loss")), builder);
    LossValue value = buildLoss(b, loss, operands, layout);
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
    if (loss.kind == "ctc")
      line += ", blank " + std::to_string(loss.blank) + ", targets of up to " +
              std::to_string(loss.targetSize) +
              " labels; each sample's loss is divided by its labels";
    if (loss.kind == "triplet")
      line += " as the anchor, '" + loss.positive + "' and '" + loss.negative + "'";
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
