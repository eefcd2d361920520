#include "passes/UpdateBuilder.h"

#include "passes/Compensation.h"
#include "passes/LossScale.h"
#include "passes/NarrowState.h"
#include "passes/OptimizerUpdate.h"
#include "passes/RankReduction.h"
#include "passes/TaskMasks.h"

using namespace mlir;

namespace sluice {

using graph::GraphBuilder;

static std::string nameIn(StringRef folder, const Gradient &gradient) {
  graph::ParameterOp parameter = gradient.parameter;
  return (folder + "/" + modelName(parameter.getSymName())).str();
}

std::vector<NamedValue> UpdateBuilder::build(std::vector<Gradient> gradients,
                                             ArrayRef<graph::ParameterOp> buffers) {
  GraphBuilder b = at("normalize");
  divide(gradients);
  if (spec.penalty.isOn())
    addPenalty(gradients);
  if (spec.masks.isOn())
    for (Gradient &gradient : gradients) // norms are those of what the task trains
      gradient.sum = onlyWhereTrains(gradient.sum, nullptr, gradient.parameter, state,
                                     reads, builder);
  std::vector<MeanGradient> means;
  for (Gradient &gradient : gradients)
    means.push_back({gradient.parameter, &gradient.sum, gradient.shards});
  GradientClip clip(spec, std::move(means), state, reads, builder);
  std::vector<NamedValue> named;
  if (spec.lossScale.isOn())
    named.push_back({"nonfinite", checkFinite(gradients, clip)});
  Value finite = applies;
  if (spec.spikes.judgesNorms()) {
    Value usual = clip.isUsual(finite);
    applies = finite ? b.make<graph::AndOp>(finite, usual) : usual;
  }
  if (applies) {
    keepBuffers(entry, reads, builder, applies);
    restoreBuffers(buffers, state, reads, builder, applies);
  }
  clip.clip();
  clip.remember(finite);
  for (const Gradient &gradient : gradients)
    update(gradient);
  if (spec.measuresNorms()) {
    std::vector<NamedValue> norms = clip.results(entry);
    named.insert(named.begin(), norms.begin(), norms.end());
  }
  return named;
}

GraphBuilder UpdateBuilder::at(StringRef name) {
  return {NameLoc::get(builder.getStringAttr(name)), builder};
}

/// Sums to means, and what makes up for the delay of one.
void UpdateBuilder::divide(std::vector<Gradient> &gradients) {
  llvm::DenseMap<Value, Value> inverses;
  for (Gradient &gradient : gradients) {
    Value &inverse = inverses[gradient.count];
    if (!inverse)
      inverse = inverseOf(gradient.count);
    gradient.sum = multiply(gradient.sum, inverse, gradient.parameter);
    if (gradient.old)
      gradient.sum = compensate(gradient.parameter, gradient.sum, gradient.old, spec,
                                state, reads, builder);
  }
}

Value UpdateBuilder::inverseOf(Value count) {
  GraphBuilder b = at("normalize");
  Value zero = b.splatLike(count, 0), one = b.splatLike(count, 1);
  // Without a single counted sample the gradients are 0, not NaN.
  Value some = b.compare(count, "gt", zero);
  Value inverse = b.select(some, b.div(one, b.select(some, count, one)), zero);
  // Exact: the scale is a power of two.
  Value scale = readLossScale(spec.lossScale, state, reads, builder);
  return scale ? b.div(inverse, scale) : inverse;
}

Value UpdateBuilder::multiply(Value gradient, Value factor,
                              graph::ParameterOp parameter) {
  GraphBuilder b(parameter.getLoc(), builder);
  Value converted = b.cast(factor, graph::tensorType(gradient).getElementType());
  return b.mul(gradient, b.broadcastLike(converted, gradient));
}

/// Before the clip, which is that of the gradient of all that is minimised.
void UpdateBuilder::addPenalty(std::vector<Gradient> &gradients) {
  for (Gradient &gradient : gradients) {
    gradient.task = gradient.sum;
    if (!spec.penalty.coupled)
      continue;
    Penalty penalty(spec.penalty, gradient.parameter, state, reads, builder);
    gradient.sum =
        penalty.addTo(gradient.sum, readExact(gradient.parameter, state, reads, builder));
  }
}

/// Decides whether the update applies, between unscaling and clipping, and writes the
/// scale.
Value UpdateBuilder::checkFinite(ArrayRef<Gradient> gradients, GradientClip &clip) {
  GraphBuilder b = at("loss_scale");
  auto i64 = RankedTensorType::get({}, builder.getI64Type());
  Value first = b.splat(i64, -1);
  for (size_t i = gradients.size(); i-- > 0;) {
    Value wrong = countNonFinite(b, gradients[i].sum);
    if (gradients[i].shards.isShared())
      wrong = sumOverRanks(wrong, nameIn("nonfinite", gradients[i]), builder);
    wrong = b.make<graph::AndOp>(b.compare(wrong, "gt", b.splatLike(wrong, 0)),
                                 isActive(b, gradients[i].parameter));
    first = b.select(wrong, b.splat(i64, static_cast<double>(i)), first);
  }
  applies = b.compare(first, "lt", b.splatLike(first, 0));
  Value norm;
  if (spec.lossScale.kind == "adaptive")
    // Of the sum, which is what is scaled.
    norm = b.mul(clip.largestNorm(), gradients.front().count);
  updateLossScale(spec.lossScale, state, reads, builder, applies, norm);
  return first;
}

Value UpdateBuilder::isActive(GraphBuilder &b, graph::ParameterOp parameter) {
  auto declared =
      state.declare("control/" + parameter.getGroup()->str() + "/active",
                    RankedTensorType::get({}, builder.getF32Type()), "control");
  declared.setFillAttr(builder.getF64FloatAttr(1));
  Value active = reads.read(declared);
  return b.compare(active, "gt", b.splatLike(active, 0));
}

void UpdateBuilder::update(const Gradient &gradient) {
  OptimizerUpdate update(builder, state, reads, gradient.parameter,
                         spec.precision.optimizerState, applies);
  graph::ParameterOp parameter = gradient.parameter;
  if (spec.penalty.isOn())
    update.holdBy(spec.penalty, gradient.task);
  update.build(gradient.sum, gradient.shards);
  if (!update.whyWide().empty())
    decide(parameter->getParentOfType<ModuleOp>(), modelName(parameter.getSymName()),
           "precision: moments stay f32: " + update.whyWide());
}

} // namespace sluice
