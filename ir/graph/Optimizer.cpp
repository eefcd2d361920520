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

/// The position of a name in the operation's `hyper`, or -1.
static int64_t hyperIndex(Operation *op, StringRef name) {
  auto names = op->getAttrOfType<ArrayAttr>("hyper_names");
  for (unsigned i = 0; names && i < names.size(); ++i)
    if (cast<StringAttr>(names[i]).getValue() == name)
      return op->getNumOperands() - names.size() + i; // they are the last operands
  return -1;
}

Hyper hyperOf(Operation *op, StringRef name, bool rest) {
  Hyper hyper;
  int64_t index = hyperIndex(op, rest ? name.str() + "_rest" : name.str());
  if (index >= 0) {
    hyper.scalar = op->getOperand(index);
    return hyper;
  }
  hyper.number = real(op->getAttrOfType<FloatAttr>(name).getValue());
  if (rest)
    hyper.number = 1 - hyper.number;
  return hyper;
}

double hyperOf(Evaluation &eval, StringRef name) {
  int64_t index = hyperIndex(eval.op, name);
  return index >= 0 ? eval.operand(index).reals[0] : hyperOf(eval.op, name).number;
}

LogicalResult SgdOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                      Adaptor adaptor, SmallVectorImpl<Type> &results) {
  results.append(adaptor.getV() ? 2 : 1, adaptor.getW().getType());
  return checkUpdate(loc, "sgd", adaptor.getW(), {adaptor.getG(), adaptor.getV()});
}

LogicalResult SgdOp::evaluate(Evaluation &eval) {
  bool hasVelocity = static_cast<bool>(getV());
  unsigned scalars = hasVelocity ? 3 : 2;
  double lr = eval.operand(scalars).reals[0], momentum = hyperOf(eval, "momentum");
  bool first = eval.operand(scalars + 1).integers[0] == 0;
  double share = first ? 1 : 1 - hyperOf(eval, "dampening");
  double decay = hyperOf(eval, "weight_decay");
  for (int64_t i = 0, e = eval.operand(0).size(); i < e; ++i) {
    double w = eval.operand(0).reals[i], g = eval.operand(1).reals[i] + decay * w;
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
  Hyper momentum = b.hyper("momentum"), dampening = b.hyper("dampening");
  Value g = b.withDecay(getG(), getW()), direction = g, v;
  if (getV()) {
    Value input = g;
    if (!dampening.isZero()) {
      Value first = b.compare(getUpdate(), "eq", b.splatLike(getUpdate(), 0));
      input = b.select(b.broadcastLike(first, g), g, b.scale(g, b.rest("dampening")));
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
  double bc2 = eval.operand(6).reals[0], decay = hyperOf(eval, "weight_decay");
  double eps = hyperOf(eval, "epsilon"), beta1 = hyperOf(eval, "beta1");
  double beta2 = hyperOf(eval, "beta2");
  for (int64_t i = 0, e = eval.operand(0).size(); i < e; ++i) {
    double w = eval.operand(0).reals[i], g = eval.operand(1).reals[i];
    if (getDecoupled())
      w -= lr * decay * w;
    else
      g += decay * w;
    double m = moved(eval.operand(2).reals[i], beta1, g);
    double v = moved(eval.operand(3).reals[i], beta2, g * g), spread = v;
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
  if (getDecoupled())
    w = b.decayed(w, lr);
  else
    g = b.withDecay(g, w);
  Value m = b.average(getM(), "beta1", g);
  Value v = b.averageSquare(getV(), "beta2", g), spread = v, step = lr;
  if (getMaxV())
    spread = b.make<MaxOp>(getMaxV(), v);
  Value largest = spread;
  if (getEpsBefore())
    step = b.mul(lr, b.sqrt(bc2));
  else
    spread = b.corrected(spread, bc2);
  step = b.div(step, bc1);
  Value direction = b.overRoot(m, spread);
  SmallVector<Value> results{b.sub(w, b.times(direction, step)), m, v};
  if (getMaxV())
    results.push_back(largest);
  return results;
}

} // namespace sluice::graph
