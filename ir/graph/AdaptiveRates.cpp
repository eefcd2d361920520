// Adagrad and RMSprop: a rate per element from the squares of its gradients.

#include "ir/graph/OptimizerParts.h"

using namespace mlir;

namespace sluice::graph {

LogicalResult AdagradOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                          Adaptor adaptor,
                                          SmallVectorImpl<Type> &results) {
  results.append(2, adaptor.getW().getType());
  return checkUpdate(loc, "adagrad", adaptor.getW(), {adaptor.getG(), adaptor.getS()});
}

LogicalResult AdagradOp::evaluate(Evaluation &eval) {
  double update = static_cast<double>(eval.operand(4).integers[0]);
  double rate = eval.operand(3).reals[0] / (1 + update * hyperOf(eval, "lr_decay"));
  double decay = hyperOf(eval, "weight_decay"), epsilon = hyperOf(eval, "epsilon");
  for (int64_t i = 0, e = eval.operand(0).size(); i < e; ++i) {
    double w = eval.operand(0).reals[i];
    double g = eval.operand(1).reals[i] + decay * w;
    double s = eval.operand(2).reals[i] + g * g;
    eval.result(0).reals[i] = eval.round(w - rate * g / (std::sqrt(s) + epsilon));
    eval.result(1).reals[i] = eval.round(s);
  }
  return success();
}

SmallVector<Value> AdagradOp::decompose(OpBuilder &builder) {
  UpdateBuilder b(*this, builder);
  Value w = getW(), lr = b.control(getLr(), w);
  if (Hyper decay = b.hyper("lr_decay"); !decay.isZero()) {
    Value update = b.cast(getUpdate(), tensorType(w).getElementType());
    lr = b.div(lr, b.shift(b.scale(update, decay), 1));
  }
  Value g = b.withDecay(getG(), w);
  Value s = b.add(getS(), b.square(g));
  return {b.sub(w, b.times(b.overRoot(g, s), lr)), s};
}

LogicalResult RmspropOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                          Adaptor adaptor,
                                          SmallVectorImpl<Type> &results) {
  size_t expected = !adaptor.getMomentum().isZero() + adaptor.getCentered();
  if (adaptor.getState().size() != expected)
    return emitOptionalError(loc, "'rmsprop' has ", adaptor.getState().size(),
                             " tensors of state, expected ", expected);
  results.append(2 + expected, adaptor.getW().getType());
  if (failed(
          checkUpdate(loc, "rmsprop", adaptor.getW(), {adaptor.getG(), adaptor.getS()})))
    return failure();
  return checkUpdate(loc, "rmsprop", adaptor.getW(), adaptor.getState());
}

LogicalResult RmspropOp::evaluate(Evaluation &eval) {
  double lr = eval.operand(3).reals[0], alpha = hyperOf(eval, "alpha");
  double momentum = hyperOf(eval, "momentum"), decay = hyperOf(eval, "weight_decay");
  double epsilon = hyperOf(eval, "epsilon");
  bool hasBuffer = !getMomentum().isZero();
  unsigned bufferAt = 4, meanAt = hasBuffer ? 5 : 4;
  for (int64_t i = 0, e = eval.operand(0).size(); i < e; ++i) {
    double w = eval.operand(0).reals[i];
    double g = eval.operand(1).reals[i] + decay * w;
    double s = moved(eval.operand(2).reals[i], alpha, g * g), variance = s;
    if (getCentered()) {
      double mean = moved(eval.operand(meanAt).reals[i], alpha, g);
      eval.result(meanAt - 2).reals[i] = eval.round(mean);
      variance = std::max(s - mean * mean, 0.0);
    }
    double move = g / (std::sqrt(variance) + epsilon);
    if (hasBuffer) {
      move += momentum * eval.operand(bufferAt).reals[i];
      eval.result(bufferAt - 2).reals[i] = eval.round(move);
    }
    eval.result(0).reals[i] = eval.round(w - lr * move);
    eval.result(1).reals[i] = eval.round(s);
  }
  return success();
}

SmallVector<Value> RmspropOp::decompose(OpBuilder &builder) {
  UpdateBuilder b(*this, builder);
  Value w = getW(), g = b.withDecay(getG(), w);
  Value s = b.averageSquare(getS(), "alpha", g), variance = s, mean, buffer;
  if (getCentered()) {
    mean = b.average(getState().back(), "alpha", g);
    // Rounding must not make it negative.
    variance = b.make<MaxOp>(b.sub(s, b.square(mean)), b.splatLike(s, 0));
  }
  Value move = b.overRoot(g, variance);
  if (!getMomentum().isZero())
    move = buffer = b.add(b.scale(getState().front(), b.hyper("momentum")), move);
  SmallVector<Value> results{b.sub(w, b.times(move, b.control(getLr(), w))), s};
  for (Value kept : {buffer, mean})
    if (kept)
      results.push_back(kept);
  return results;
}

} // namespace sluice::graph
