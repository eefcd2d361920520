#include "passes/LossKinds.h"

#include "ir/graph/Shapes.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace sluice {

using graph::GraphBuilder;
using graph::tensorType;

static bool hasLabels(StringRef kind) { return kind == "cross_entropy" || kind == "nll"; }

bool hasTarget(StringRef kind) {
  return hasLabels(kind) ||
         llvm::is_contained({"mse", "l1", "huber", "kl", "bce_with_logits", "ctc"}, kind);
}

bool isLossKind(StringRef kind) {
  return hasTarget(kind) || llvm::is_contained({"sum", "triplet", "output"}, kind);
}

int64_t classAxis(const LossSpec &spec, int64_t rank) {
  if (spec.classAxis)
    return *spec.classAxis < 0 ? *spec.classAxis + rank : *spec.classAxis;
  return rank <= 3 ? rank - 1 : 1;
}

/// Splits dimension 0 into samples and rows, where a sample has more than one.
static SmallVector<int64_t> bySample(ArrayRef<int64_t> shape, SampleLayout layout) {
  SmallVector<int64_t> result{layout.batch};
  if (layout.rowsPerSample != 1)
    result.push_back(layout.rowsPerSample);
  llvm::append_range(result, shape.drop_front());
  return result;
}

static FailureOr<LossInput> labelInput(const LossSpec &spec, RankedTensorType prediction,
                                       SampleLayout layout, const EmitError &emitError) {
  int64_t axis = classAxis(spec, prediction.getRank());
  if (prediction.getRank() < 2 || axis < 1 || axis >= prediction.getRank())
    return emitError() << "'" << spec.kind
                       << "' needs a class dimension after the samples, '" << spec.logits
                       << "' has type " << prediction
                       << (spec.classAxis ? "; check 'loss.class_axis'" : "");
  int64_t classes = prediction.getDimSize(axis);
  if (!spec.classWeights.empty() &&
      static_cast<int64_t>(spec.classWeights.size()) != classes)
    return emitError() << "'loss.class_weights' has " << spec.classWeights.size()
                       << " entries, expected " << classes << " (classes of '"
                       << spec.logits << "')";
  SmallVector<int64_t> shape(prediction.getShape());
  shape.erase(shape.begin() + axis);
  LossInput target;
  target.name = spec.labels;
  target.type = RankedTensorType::get(bySample(shape, layout),
                                      IntegerType::get(prediction.getContext(), 64));
  target.bounds = {0, classes - 1};
  target.ignored = spec.ignoreIndex;
  return target;
}

/// Padded labels, and lengths where the spec names inputs for them.
static FailureOr<std::vector<LossInput>> ctcInputs(const LossSpec &spec,
                                                   RankedTensorType prediction,
                                                   SampleLayout layout,
                                                   const EmitError &emitError) {
  if (prediction.getRank() != 3)
    return emitError() << "'ctc' needs logits of rank 3 (samples, frames, classes), '"
                       << spec.logits << "' has type " << prediction;
  int64_t frames = prediction.getDimSize(spec.timeAxis);
  int64_t classes = prediction.getDimSize(2);
  if (spec.blank >= classes)
    return emitError() << "'loss.blank' is " << spec.blank << ", expected one of the "
                       << classes << " classes of '" << spec.logits << "'";
  Type i64 = IntegerType::get(prediction.getContext(), 64);
  std::vector<LossInput> inputs(1);
  inputs[0].name = spec.labels;
  inputs[0].type = RankedTensorType::get({layout.batch, spec.targetSize}, i64);
  inputs[0].bounds = {0, classes - 1};
  inputs[0].ignored = spec.ignoreIndex;
  auto addLengths = [&](const std::string &name, int64_t least, int64_t most) {
    if (name.empty())
      return;
    LossInput lengths;
    lengths.name = name;
    lengths.type = RankedTensorType::get(layout.batch, i64);
    lengths.bounds = {least, most};
    inputs.push_back(lengths);
  };
  addLengths(spec.inputLengths, 1, frames);
  addLengths(spec.targetLengths, 0, spec.targetSize);
  return inputs;
}

FailureOr<std::vector<LossInput>> lossInputs(const LossSpec &spec,
                                             RankedTensorType prediction,
                                             SampleLayout layout,
                                             const EmitError &emitError) {
  if (!hasTarget(spec.kind))
    return std::vector<LossInput>();
  if (spec.kind == "ctc")
    return ctcInputs(spec, prediction, layout, emitError);
  LossInput target;
  target.name = spec.labels;
  target.type = RankedTensorType::get(bySample(prediction.getShape(), layout),
                                      prediction.getElementType());
  if (hasLabels(spec.kind)) {
    auto labels = labelInput(spec, prediction, layout, emitError);
    if (failed(labels))
      return failure();
    target = *labels;
  }
  return std::vector<LossInput>{target};
}

namespace {

/// What every kind is built from.
class LossBuilder {
public:
  LossBuilder(GraphBuilder &b, const LossSpec &spec, const LossOperands &operands,
              SampleLayout layout)
      : b(b), spec(spec), operands(operands), prediction(operands.predictions[0]),
        target(operands.targets.empty() ? Value() : operands.targets[0]),
        valid(operands.valid), layout(layout) {}

  LossValue build() {
    LossValue value = buildKind();
    if (operands.logits)
      value.sum = b.add(value.sum, distanceToLogits());
    return value;
  }

private:
  LossValue buildKind() {
    StringRef kind = spec.kind;
    if (kind == "cross_entropy" || kind == "nll")
      return labelled();
    if (kind == "ctc")
      return ctc();
    if (kind == "triplet")
      return triplet();
    if (kind == "sum")
      return {sumValid(prediction), b.splat(scalarType(), 1)};
    if (kind == "output" && tensorType(prediction).getNumElements() == 1)
      return modelMean();
    Value each = kind == "output" ? prediction : elementwise();
    // A divergence is of distributions: one per sample, as PyTorch's batchmean.
    if (kind == "kl")
      return {sumValid(each), b.cast(valid, b.getF32Type())};
    if (operands.weight)
      each = b.mul(each, bySamples(operands.weight, tensorType(each)));
    return {sumValid(each), validElements(prediction)};
  }

  /// A value per sample, repeated over the elements of each.
  Value bySamples(Value perSample, RankedTensorType type) {
    Value rows = perSample;
    if (layout.rowsPerSample != 1)
      rows = b.reshape(b.spread(rows, {layout.batch, layout.rowsPerSample}, 1),
                       layout.batch * layout.rowsPerSample);
    SmallVector<int64_t> others;
    for (int64_t d = 1; d < type.getRank(); ++d)
      others.push_back(d);
    return b.cast(b.spread(rows, type.getShape(), others), type.getElementType());
  }

  /// DER (Buzzega et al. 2020): the mean squared distance of a sample's logits to those
  /// it had when it was kept, summed over samples.
  Value distanceToLogits() {
    auto type = tensorType(prediction);
    Value apart = b.square(b.sub(prediction, operands.logits));
    Value weighted = b.mul(apart, bySamples(operands.match, type));
    int64_t perSample = graph::product(type.getShape()) / layout.batch;
    return b.scale(sumValid(weighted), 1.0 / static_cast<double>(perSample));
  }

  RankedTensorType scalarType() { return RankedTensorType::get({}, b.getF32Type()); }
  Value toScalar(Value x) { return b.cast(b.reshape(x, {}), b.getF32Type()); }

  /// True for the elements of a tensor like `shape` that belong to samples before
  /// `valid`.
  Value mask(ArrayRef<int64_t> shape) {
    Value rows = b.make<graph::IotaOp>(ArrayRef<int64_t>(shape[0]), 0);
    Value limit = b.broadcast(b.scale(valid, layout.rowsPerSample), shape[0]);
    Value inside = b.compare(rows, "lt", limit);
    SmallVector<int64_t> others;
    for (int64_t d = 1, rank = shape.size(); d < rank; ++d)
      others.push_back(d);
    return b.spread(inside, shape, others);
  }

  Value sumValid(Value x) {
    Value masked = b.select(mask(tensorType(x).getShape()), x, b.splatLike(x, 0));
    return toScalar(b.sumAll(masked));
  }

  Value validElements(Value x) {
    int64_t perSample = graph::product(tensorType(x).getShape()) / layout.batch;
    return b.scale(b.cast(valid, b.getF32Type()), perSample);
  }

  /// The model's own mean over the micro-batch, weighted by the samples it stands for.
  LossValue modelMean() {
    Value count = b.cast(valid, b.getF32Type());
    return {b.mul(toScalar(prediction), count), count};
  }

  Value elementwise() {
    Value targets = b.reshape(target, tensorType(prediction).getShape());
    if (spec.kind == "mse")
      return b.square(b.sub(prediction, targets));
    if (spec.kind == "l1")
      return b.make<graph::AbsOp>(b.sub(prediction, targets));
    if (spec.kind == "huber")
      return huber(b.make<graph::AbsOp>(b.sub(prediction, targets)));
    if (spec.kind == "kl")
      return divergence(targets);
    // bce_with_logits: (1 - t) x + (1 + (p - 1) t) log(1 + e^-x), as PyTorch.
    Value rest = b.sub(b.splatLike(targets, 1), targets);
    Value surprise = b.make<graph::SoftplusOp>(b.neg(prediction));
    if (spec.posWeight != 1)
      surprise = b.mul(surprise, b.shift(b.scale(targets, spec.posWeight - 1), 1));
    return b.add(b.mul(rest, prediction), surprise);
  }

  /// d^2 / 2 up to delta, then delta * (d - delta / 2).
  Value huber(Value distance) {
    Value near = b.scale(b.square(distance), 0.5);
    Value far = b.scale(b.shift(distance, -spec.delta / 2), spec.delta);
    Value limit = b.splatLike(distance, spec.delta);
    return b.select(b.compare(distance, "le", limit), near, far);
  }

  /// t * (log t - x) where x is a logarithm too, 0 where t is 0.
  Value divergence(Value targets) {
    Value some = b.compare(targets, "gt", b.splatLike(targets, 0));
    Value safe = b.select(some, targets, b.splatLike(targets, 1));
    Value each = b.mul(targets, b.sub(b.log(safe), prediction));
    return b.select(some, each, b.splatLike(targets, 0));
  }

  /// Labels of padding are replaced by the ignored one, so the loss itself knows only
  /// that.
  LossValue labelled() {
    auto type = tensorType(prediction);
    int64_t axis = classAxis(spec, type.getRank()), classes = type.getDimSize(axis);
    SmallVector<int64_t> labelShape(type.getShape()), order;
    labelShape.erase(labelShape.begin() + axis);
    for (int64_t d = 0; d < type.getRank(); ++d)
      if (d != axis)
        order.push_back(d);
    order.push_back(axis);
    int64_t rows = graph::product(labelShape);
    Value labels = b.reshape(target, labelShape);
    labels = b.select(mask(labelShape), labels, b.splatLike(labels, spec.ignoreIndex));
    labels = b.reshape(labels, rows);
    Value scores = b.reshape(b.transpose(prediction, order), {rows, classes});
    if (operands.weight && spec.kind != "nll")
      scores = b.make<graph::LogSoftmaxOp>(scores, 1);
    if (operands.weight || spec.kind == "nll")
      return negativeLogLikelihood(scores, labels);
    auto op =
        b.create<graph::CrossEntropyOp>(scores, labels, weights(type.getElementType()),
                                        spec.ignoreIndex, APFloat(spec.labelSmoothing));
    return {toScalar(op.getLoss()), toScalar(op.getCount())};
  }

  Value weights(Type element) {
    if (spec.classWeights.empty())
      return nullptr;
    SmallVector<Attribute> values;
    for (double weight : spec.classWeights)
      values.push_back(b.getFloatAttr(element, weight));
    auto type = RankedTensorType::get(values.size(), element);
    return b.make<graph::ConstantOp>(ElementsAttr(DenseElementsAttr::get(type, values)));
  }

  /// -sum of weight * score of the label's column, over rows that are not ignored.
  LossValue negativeLogLikelihood(Value scores, Value labels) {
    ArrayRef<int64_t> shape = tensorType(scores).getShape();
    Value columns = b.make<graph::IotaOp>(shape, 1);
    Value hot = b.compare(columns, "eq", b.spread(labels, shape, 1));
    Value kept = b.compare(labels, "ne", b.splatLike(labels, spec.ignoreIndex));
    hot = b.make<graph::AndOp>(hot, b.spread(kept, shape, 1));
    Value zero = b.splatLike(scores, 0),
          weight = weights(tensorType(scores).getElementType());
    Value each = weight ? b.broadcastLike(weight, scores) : b.splatLike(scores, 1);
    Value loss = b.neg(b.mul(scores, each));
    if (operands.weight) {
      int64_t perSample = shape[0] / layout.batch;
      Value rows =
          b.reshape(b.spread(operands.weight, {layout.batch, perSample}, 1), shape[0]);
      loss = b.mul(loss,
                   b.cast(b.spread(rows, shape, 1), tensorType(scores).getElementType()));
    }
    return {toScalar(b.sumAll(b.select(hot, loss, zero))),
            toScalar(b.sumAll(b.select(hot, each, zero)))};
  }

  /// Each sample's loss divided by the length of its target, then the mean over samples,
  /// as PyTorch's. A log_softmax of what has been through one changes nothing.
  LossValue ctc() {
    Value logProbs = prediction;
    if (spec.timeAxis == 0)
      logProbs = b.transpose(logProbs, {1, 0, 2});
    if (!spec.logProbs)
      logProbs = b.make<graph::LogSoftmaxOp>(logProbs, 2);
    size_t next = 1;
    auto lengths = [&](const std::string &name, int64_t all) {
      if (!name.empty())
        return operands.targets[next++];
      return b.splat(RankedTensorType::get(layout.batch, b.getI64Type()),
                     static_cast<double>(all));
    };
    int64_t frames = tensorType(logProbs).getDimSize(1);
    Value inputLengths = lengths(spec.inputLengths, frames);
    Value targetLengths = lengths(spec.targetLengths, spec.targetSize);
    Value each = b.make<graph::CtcLossOp>(logProbs, target, inputLengths, targetLengths,
                                          spec.blank, spec.zeroInfinity,
                                          /*per_label=*/true);
    return {sumValid(each), b.cast(valid, b.getF32Type())};
  }

  /// |x - y + 1e-6| along the last dimension, as PyTorch's pairwise_distance: the root
  /// has a gradient where x and y are equal.
  Value distance(Value x, Value y) {
    Value difference = b.shift(b.sub(x, y), 1e-6);
    int64_t last = tensorType(x).getRank() - 1;
    if (spec.p == 1)
      return b.sum(b.make<graph::AbsOp>(difference), last, /*keep=*/false);
    return b.sqrt(b.sum(b.square(difference), last, /*keep=*/false));
  }

  LossValue triplet() {
    Value positive = operands.predictions[1], negative = operands.predictions[2];
    Value near = distance(prediction, positive), far = distance(prediction, negative);
    if (spec.swap)
      far = b.make<graph::MinOp>(far, distance(positive, negative));
    Value each = b.make<graph::ReluOp>(b.shift(b.sub(near, far), spec.margin));
    return {sumValid(each), validElements(each)};
  }

  GraphBuilder &b;
  const LossSpec &spec;
  const LossOperands &operands;
  Value prediction, target, valid;
  SampleLayout layout;
};

} // namespace

LossValue buildLoss(GraphBuilder &b, const LossSpec &spec, const LossOperands &operands,
                    SampleLayout layout) {
  return LossBuilder(b, spec, operands, layout).build();
}

} // namespace sluice
