// SGD and Adam. The order of operations written in Optimizer.td is the definition of
// their bits. The other optimizers have files of their own.

#include "ir/graph/OptimizerParts.h"

using namespace mlir;

#define GET_OP_CLASSES
#include "ir/graph/Optimizer.cpp.inc"

namespace sluice::graph {

LogicalResult checkUpdate(std::optional<Location> loc, StringRef name, Value w,
                          ValueRange others) {
  for (Value other : others)
    if (other && other.getType() != w.getType())
      return emitOptionalError(loc, "operand of '", name, "' has type ", other.getType(),
                               ", expected that of the parameter, ", w.getType());
  return success();
}

LogicalResult SgdOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                      Adaptor adaptor, SmallVectorImpl<Type> &results) {
  results.append(adaptor.getV() ? 2 : 1, adaptor.getW().getType());
  return checkUpdate(loc, "sgd", adaptor.getW(), {adaptor.getG(), adaptor.getV()});
}

LogicalResult SgdOp::evaluate(Evaluation &eval) {
  bool hasVelocity = static_cast<bool>(getV());
  unsigned scalars = hasVelocity ? 3 : 2;
  double lr = eval.operand(scalars).reals[0], momentum = real(getMomentum());
  bool first = eval.operand(scalars + 1).integers[0] == 0;
  double share = first ? 1 : 1 - real(getDampening());
  for (int64_t i = 0, e = eval.operand(0).size(); i < e; ++i) {
    double w = eval.operand(0).reals[i],
           g = eval.operand(1).reals[i] + real(getWeightDecay()) * w;
    double direction = g;
    if (hasVelocity) {
      double v = momentum * eval.operand(2).reals[i] + share * g;
      eval.result(1).reals[i] = eval.round(v);
      direction = getNesterov() ? g + momentum * v : v;
    }
    eval.result(0).reals[i] = eval.round(w - lr * direction);
  }
  return success();
}

SmallVector<Value> SgdOp::decompose(OpBuilder &builder) {
  UpdateBuilder b(*this, builder);
  double momentum = real(getMomentum()), dampening = real(getDampening());
  Value g = b.withDecay(getG(), getW(), real(getWeightDecay())), direction = g, v;
  if (getV()) {
    Value input = g;
    if (dampening != 0) {
      Value first = b.compare(getUpdate(), "eq", b.splatLike(getUpdate(), 0));
      input = b.select(b.broadcastLike(first, g), g, b.scale(g, 1 - dampening));
    }
    v = b.add(b.scale(getV(), momentum), input);
    direction = getNesterov() ? b.add(g, b.scale(v, momentum)) : v;
  }
  SmallVector<Value> results{
      b.sub(getW(), b.times(direction, b.control(getLr(), getW())))};
  if (v)
    results.push_back(v);
  return results;
}

LogicalResult AdamOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                       Adaptor adaptor, SmallVectorImpl<Type> &results) {
  results.append(adaptor.getMaxV() ? 4 : 3, adaptor.getW().getType());
  return checkUpdate(loc, "adam", adaptor.getW(),
                     {adaptor.getG(), adaptor.getM(), adaptor.getV(), adaptor.getMaxV()});
}

LogicalResult AdamOp::evaluate(Evaluation &eval) {
  double lr = eval.operand(4).reals[0], bc1 = eval.operand(5).reals[0];
  double bc2 = eval.operand(6).reals[0], decay = real(getWeightDecay()),
         eps = real(getEpsilon());
  for (int64_t i = 0, e = eval.operand(0).size(); i < e; ++i) {
    double w = eval.operand(0).reals[i], g = eval.operand(1).reals[i];
    if (getDecoupled())
      w -= lr * decay * w;
    else
      g += decay * w;
    double m = moved(eval.operand(2).reals[i], real(getBeta1()), g);
    double v = moved(eval.operand(3).reals[i], real(getBeta2()), g * g), spread = v;
    if (getMaxV()) {
      spread = std::max(eval.operand(7).reals[i], v);
      eval.result(3).reals[i] = eval.round(spread);
    }
    w -= getEpsBefore() ? lr * std::sqrt(bc2) / bc1 * m / (std::sqrt(spread) + eps)
                        : lr / bc1 * m / (std::sqrt(spread / bc2) + eps);
    eval.result(0).reals[i] = eval.round(w);
    eval.result(1).reals[i] = eval.round(m);
    eval.result(2).reals[i] = eval.round(v);
  }
  return success();
}

SmallVector<Value> AdamOp::decompose(OpBuilder &builder) {
  UpdateBuilder b(*this, builder);
  Value w = getW(), g = getG(), lr = b.control(getLr(), w), bc1 = b.control(getBc1(), w);
  Value bc2 = b.control(getBc2(), w);
  double decay = real(getWeightDecay());
  if (getDecoupled())
    w = b.decayed(w, lr, decay);
  else
    g = b.withDecay(g, w, decay);
  Value m = b.average(getM(), real(getBeta1()), g);
  Value v = b.averageSquare(getV(), real(getBeta2()), g), spread = v, step = lr;
  if (getMaxV())
    spread = b.make<MaxOp>(getMaxV(), v);
  Value largest = spread;
  if (getEpsBefore())
    step = b.mul(lr, b.sqrt(bc2));
  else
    spread = b.corrected(spread, bc2);
  step = b.div(step, bc1);
  Value direction = b.overRoot(m, spread, real(getEpsilon()));
  SmallVector<Value> results{b.sub(w, b.times(direction, step)), m, v};
  if (getMaxV())
    results.push_back(largest);
  return results;
}

} // namespace sluice::graph
