// Optimizer updates. The order of operations written in Train.td is the definition of
// their bits.

#include "ir/graph/GraphBuilder.h"
#include "ir/graph/Interpreter.h"

#include <cmath>

using namespace mlir;

namespace sluice::graph {

namespace {

/// All tensors of an update have the shape of the parameter.
LogicalResult checkShapes(std::optional<Location> loc, StringRef name, Value w,
                          ValueRange others) {
  for (Value other : others)
    if (other && other.getType() != w.getType())
      return emitOptionalError(loc, "operand of '", name, "' has type ", other.getType(),
                               ", expected that of the parameter, ", w.getType());
  return success();
}

double real(const APFloat &x) { return x.convertToDouble(); }

} // namespace

LogicalResult SgdOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                      Adaptor adaptor, SmallVectorImpl<Type> &results) {
  results.append(adaptor.getV() ? 2 : 1, adaptor.getW().getType());
  return checkShapes(loc, "sgd", adaptor.getW(), {adaptor.getG(), adaptor.getV()});
}

LogicalResult SgdOp::evaluate(Evaluation &eval) {
  bool hasVelocity = static_cast<bool>(getV());
  unsigned scalars = hasVelocity ? 3 : 2;
  double lr = eval.operand(scalars).reals[0], momentum = real(getMomentum());
  bool first = eval.operand(scalars + 1).integers[0] == 0;
  for (int64_t i = 0, e = eval.operand(0).size(); i < e; ++i) {
    double w = eval.operand(0).reals[i],
           g = eval.operand(1).reals[i] + real(getWeightDecay()) * w;
    double direction = g;
    if (hasVelocity) {
      double v =
          first ? g
                : momentum * eval.operand(2).reals[i] + (1 - real(getDampening())) * g;
      eval.result(1).reals[i] = eval.round(v);
      direction = getNesterov() ? g + momentum * v : v;
    }
    eval.result(0).reals[i] = eval.round(w - lr * direction);
  }
  return success();
}

SmallVector<Value> SgdOp::decompose(OpBuilder &builder) {
  GraphBuilder b(getLoc(), builder);
  Value w = getW(), g = getG(), v;
  double momentum = real(getMomentum()), dampening = real(getDampening());
  if (double decay = real(getWeightDecay()); decay != 0)
    g = b.add(g, b.scale(w, decay));
  Value direction = g;
  if (getV()) {
    Value input = dampening == 0 ? g : b.scale(g, 1 - dampening);
    v = b.add(b.scale(getV(), momentum), input);
    if (dampening != 0) { // else the first velocity is g anyway, since it starts at 0
      Value first = b.compare(getUpdate(), "eq", b.splatLike(getUpdate(), 0));
      v = b.select(b.broadcastLike(first, v), g, v);
    }
    direction = getNesterov() ? b.add(g, b.scale(v, momentum)) : v;
  }
  Value lr = b.broadcastLike(b.cast(getLr(), tensorType(w).getElementType()), w);
  SmallVector<Value> results{b.sub(w, b.mul(direction, lr))};
  if (v)
    results.push_back(v);
  return results;
}

LogicalResult AdamOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                       Adaptor adaptor, SmallVectorImpl<Type> &results) {
  results.append(3, adaptor.getW().getType());
  return checkShapes(loc, "adam", adaptor.getW(),
                     {adaptor.getG(), adaptor.getM(), adaptor.getV()});
}

LogicalResult AdamOp::evaluate(Evaluation &eval) {
  double lr = eval.operand(4).reals[0], bc1 = eval.operand(5).reals[0];
  double bc2 = eval.operand(6).reals[0], decay = real(getWeightDecay()),
         eps = real(getEpsilon());
  double b1 = real(getBeta1()), b2 = real(getBeta2());
  for (int64_t i = 0, e = eval.operand(0).size(); i < e; ++i) {
    double w = eval.operand(0).reals[i], g = eval.operand(1).reals[i];
    if (getDecoupled())
      w -= lr * decay * w;
    else
      g += decay * w;
    double m = b1 * eval.operand(2).reals[i] + (1 - b1) * g;
    double v = b2 * eval.operand(3).reals[i] + (1 - b2) * g * g;
    w -= getEpsBefore() ? lr * std::sqrt(bc2) / bc1 * m / (std::sqrt(v) + eps)
                        : lr / bc1 * m / (std::sqrt(v / bc2) + eps);
    eval.result(0).reals[i] = eval.round(w);
    eval.result(1).reals[i] = eval.round(m);
    eval.result(2).reals[i] = eval.round(v);
  }
  return success();
}

SmallVector<Value> AdamOp::decompose(OpBuilder &builder) {
  GraphBuilder b(getLoc(), builder);
  Value w = getW(), g = getG();
  Type element = tensorType(w).getElementType();
  Value lr = b.cast(getLr(), element), bc1 = b.cast(getBc1(), element);
  Value bc2 = b.cast(getBc2(), element);
  double decay = real(getWeightDecay()), b1 = real(getBeta1()), b2 = real(getBeta2());
  if (decay != 0 && !getDecoupled())
    g = b.add(g, b.scale(w, decay));
  Value m = b.add(b.scale(getM(), b1), b.scale(g, 1 - b1));
  Value v = b.add(b.scale(getV(), b2), b.mul(b.scale(g, 1 - b2), g));
  Value spread = v, step = lr;
  if (getEpsBefore())
    step = b.mul(lr, b.make<SqrtOp>(bc2));
  else
    spread = b.mul(v, b.broadcastLike(b.div(b.splatLike(bc2, 1), bc2), v));
  step = b.div(step, bc1);
  Value direction = b.div(m, b.shift(b.make<SqrtOp>(spread), real(getEpsilon())));
  if (decay != 0 && getDecoupled()) {
    Value keep = b.sub(b.splatLike(lr, 1), b.scale(lr, decay));
    w = b.mul(w, b.broadcastLike(keep, w));
  }
  return {b.sub(w, b.mul(direction, b.broadcastLike(step, w))), m, v};
}

} // namespace sluice::graph
