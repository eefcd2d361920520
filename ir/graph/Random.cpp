// Random numbers by counter, and dropout.

#include "ir/graph/GraphBuilder.h"
#include "ir/graph/Interpreter.h"
#include "ir/graph/Philox.h"
#include "ir/graph/Shapes.h"

using namespace mlir;

namespace sluice::graph {

LogicalResult RandomUniformOp::inferReturnTypes(MLIRContext *context,
                                                std::optional<Location> loc,
                                                Adaptor adaptor,
                                                SmallVectorImpl<Type> &results) {
  ArrayRef<int64_t> shape = adaptor.getShape();
  if (failed(checkAtLeast("random_uniform", loc, "shape", shape, 0)))
    return failure();
  if (adaptor.getBatched() && shape.empty())
    return emitOptionalError(
        loc, "'random_uniform' is batched and a scalar, expected a dimension "
             "that counts samples");
  results.push_back(RankedTensorType::get(shape, Float32Type::get(context)));
  return success();
}

LogicalResult RandomUniformOp::evaluate(Evaluation &eval) {
  HostTensor &y = eval.result(0);
  int64_t perSample = getBatched() ? product(getShape().drop_front()) : y.size();
  RandomKey key;
  key.seed = eval.operand(0).integers[0];
  key.update = eval.operand(1).integers[0];
  key.id = getId();
  for (int64_t at = 0, size = y.size(); at < size; ++at) {
    key.sample = getBatched() ? eval.operand(2).integers[0] + at / perSample : 0;
    y.reals[at] = philoxUniform(key, at % perSample);
  }
  return success();
}

LogicalResult DropoutOp::inferReturnTypes(MLIRContext *context,
                                          std::optional<Location> loc, Adaptor adaptor,
                                          SmallVectorImpl<Type> &results) {
  auto x = cast<RankedTensorType>(adaptor.getX().getType());
  int64_t samples = adaptor.getSamples();
  if (samples < 0 ||
      (samples > 0 && (x.getRank() == 0 || x.getDimSize(0) % samples != 0)))
    return emitOptionalError(loc, "'dropout' splits ", x, " over ", samples,
                             " samples, expected a divisor of dimension 0");
  double ratio = adaptor.getRatio().convertToDouble();
  if (!(ratio >= 0 && ratio <= 1))
    return emitOptionalError(loc, "ratio of 'dropout' is ", ratio, ", expected 0 to 1");
  results.push_back(x);
  results.push_back(RankedTensorType::get(x.getShape(), IntegerType::get(context, 1)));
  return success();
}

/// 1 / (1 - ratio), and 0 where nothing is kept.
static double keptScale(DropoutOp op) {
  double kept = 1 - op.getRatio().convertToDouble();
  return kept > 0 ? 1 / kept : 0;
}

LogicalResult DropoutOp::evaluate(Evaluation &eval) {
  const HostTensor &x = eval.operand(0);
  int64_t samples = getSamples(), perSample = samples > 0 ? x.size() / samples : x.size();
  RandomKey key;
  key.seed = eval.operand(1).integers[0];
  key.update = eval.operand(2).integers[0];
  key.id = getId();
  // Compared in f32, as the kernel does: a ratio of 0.1 is the f32 number next to it.
  float ratio = static_cast<float>(getRatio().convertToDouble());
  for (int64_t at = 0, size = x.size(); at < size; ++at) {
    key.sample = samples > 0 ? eval.operand(3).integers[0] + at / perSample : 0;
    bool keep = philoxUniform(key, at % perSample) >= ratio;
    eval.result(0).reals[at] = keep ? eval.round(x.reals[at] * keptScale(*this)) : 0;
    eval.result(1).integers[at] = keep;
  }
  return success();
}

SmallVector<Value> DropoutOp::decompose(OpBuilder &builder) {
  GraphBuilder b(getLoc(), builder);
  ArrayRef<int64_t> shape = tensorType(getX()).getShape();
  SmallVector<int64_t> keyed(shape);
  int64_t samples = getSamples();
  if (samples > 0)
    keyed = {samples, product(shape) / samples};
  Value random =
      b.create<RandomUniformOp>(getSeed(), getUpdate(), getSample(), keyed, getId(),
                                /*batched=*/samples > 0);
  double ratio = static_cast<float>(getRatio().convertToDouble());
  Value mask = b.reshape(b.compare(random, "ge", b.splatLike(random, ratio)), shape);
  Value scaled = b.scale(getX(), keptScale(*this));
  return {b.select(mask, scaled, b.splatLike(scaled, 0)), mask};
}

LogicalResult DropoutOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  GraphBuilder b(getLoc(), builder);
  Value scaled = b.scale(context.cotangent(0), keptScale(*this));
  context.set(0, b.select(getMask(), scaled, b.splatLike(scaled, 0)));
  return success();
}

SmallVector<Value> DropoutOp::evaluationForm(OpBuilder &builder) {
  GraphBuilder b(getLoc(), builder);
  return {getX(), b.splatLike(getMask(), 1)};
}

} // namespace sluice::graph
