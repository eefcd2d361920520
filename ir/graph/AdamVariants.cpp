// NAdam, RAdam, LAMB and Lion: variations of Adam's two moving averages.

#include "ir/graph/OptimizerParts.h"

using namespace mlir;

namespace sluice::graph {

namespace {

/// The part that is Adam's in all: decay where it belongs to the gradient, then both
/// moving averages.
struct Moments {
  double w, g, m, v;
  Moments(Evaluation &eval, int64_t i, double coupledDecay)
      : w(eval.operand(0).reals[i]), g(eval.operand(1).reals[i] + coupledDecay * w),
        m(moved(eval.operand(2).reals[i], hyperOf(eval, "beta1"), g)),
        v(moved(eval.operand(3).reals[i], hyperOf(eval, "beta2"), g * g)) {}
  void store(Evaluation &eval, int64_t i, double newW) const {
    eval.result(0).reals[i] = eval.round(newW);
    eval.result(1).reals[i] = eval.round(m);
    eval.result(2).reals[i] = eval.round(v);
  }
};

/// The same as operations.
struct MomentValues {
  Value w, g, lr, m, v;
  template <class OpT> MomentValues(OpT op, UpdateBuilder &b, bool decoupled) {
    w = op.getW(), g = op.getG(), lr = b.control(op.getLr(), w);
    if (decoupled)
      w = b.decayed(w, lr);
    else
      g = b.withDecay(g, w);
    m = b.average(op.getM(), "beta1", g);
    v = b.averageSquare(op.getV(), "beta2", g);
  }
};

template <class Adaptor>
LogicalResult momentTypes(std::optional<Location> loc, StringRef name, Adaptor adaptor,
                          SmallVectorImpl<Type> &results) {
  results.append(3, adaptor.getW().getType());
  return checkUpdate(loc, name, adaptor.getW(),
                     {adaptor.getG(), adaptor.getM(), adaptor.getV()});
}

} // namespace

LogicalResult NadamOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                        Adaptor adaptor, SmallVectorImpl<Type> &results) {
  return momentTypes(loc, "nadam", adaptor, results);
}

LogicalResult NadamOp::evaluate(Evaluation &eval) {
  double lr = eval.operand(4).reals[0], bc2 = eval.operand(5).reals[0];
  double ofG = eval.operand(6).reals[0], ofM = eval.operand(7).reals[0];
  double decay = hyperOf(eval, "weight_decay"), epsilon = hyperOf(eval, "epsilon");
  for (int64_t i = 0, e = eval.operand(0).size(); i < e; ++i) {
    Moments x(eval, i, getDecoupled() ? 0 : decay);
    double keep = getDecoupled() ? 1 - lr * decay : 1;
    double root = std::sqrt(x.v / bc2) + epsilon;
    x.store(eval, i, x.w * keep - lr * (ofG * x.g + ofM * x.m) / root);
  }
  return success();
}

SmallVector<Value> NadamOp::decompose(OpBuilder &builder) {
  UpdateBuilder b(*this, builder);
  MomentValues x(*this, b, getDecoupled());
  Value direction = b.add(b.times(x.g, b.control(getNadamG(), x.w)),
                          b.times(x.m, b.control(getNadamM(), x.w)));
  direction = b.overRoot(direction, b.corrected(x.v, b.control(getBc2(), x.w)));
  return {b.sub(x.w, b.times(direction, x.lr)), x.m, x.v};
}

LogicalResult RadamOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                        Adaptor adaptor, SmallVectorImpl<Type> &results) {
  return momentTypes(loc, "radam", adaptor, results);
}

LogicalResult RadamOp::evaluate(Evaluation &eval) {
  double lr = eval.operand(4).reals[0], bc1 = eval.operand(5).reals[0];
  double bc2 = eval.operand(6).reals[0], rectification = eval.operand(7).reals[0];
  double decay = hyperOf(eval, "weight_decay"), epsilon = hyperOf(eval, "epsilon");
  for (int64_t i = 0, e = eval.operand(0).size(); i < e; ++i) {
    Moments x(eval, i, getDecoupled() ? 0 : decay);
    double keep = getDecoupled() ? 1 - lr * decay : 1, direction = x.m / bc1;
    if (rectification > 0)
      direction *= rectification * std::sqrt(bc2) / (std::sqrt(x.v) + epsilon);
    x.store(eval, i, x.w * keep - lr * direction);
  }
  return success();
}

SmallVector<Value> RadamOp::decompose(OpBuilder &builder) {
  UpdateBuilder b(*this, builder);
  MomentValues x(*this, b, getDecoupled());
  Value r = b.control(getRadamR(), x.w), step = b.div(x.lr, b.control(getBc1(), x.w));
  Value adaptive = b.times(b.overRoot(x.m, x.v),
                           b.mul(step, b.mul(b.sqrt(b.control(getBc2(), x.w)), r)));
  Value trusted = b.broadcastLike(b.compare(r, "gt", b.splatLike(r, 0)), x.m);
  Value move = b.select(trusted, adaptive, b.times(x.m, step));
  return {b.sub(x.w, move), x.m, x.v};
}

LogicalResult LambOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                       Adaptor adaptor, SmallVectorImpl<Type> &results) {
  return momentTypes(loc, "lamb", adaptor, results);
}

LogicalResult LambOp::evaluate(Evaluation &eval) {
  double lr = eval.operand(4).reals[0], bc1 = eval.operand(5).reals[0];
  double bc2 = eval.operand(6).reals[0], squareW = 0, squareR = 0;
  double decay = hyperOf(eval, "weight_decay"), epsilon = hyperOf(eval, "epsilon");
  std::vector<double> direction;
  for (int64_t i = 0, e = eval.operand(0).size(); i < e; ++i) {
    Moments x(eval, i, 0);
    double r = x.m / bc1 / (std::sqrt(x.v / bc2) + epsilon) + decay * x.w;
    direction.push_back(r);
    squareW += x.w * x.w;
    squareR += r * r;
    x.store(eval, i, x.w);
  }
  double trust = squareW > 0 && squareR > 0 ? std::sqrt(squareW / squareR) : 1;
  for (int64_t i = 0, e = eval.operand(0).size(); i < e; ++i)
    eval.result(0).reals[i] =
        eval.round(eval.operand(0).reals[i] - lr * trust * direction[i]);
  return success();
}

SmallVector<Value> LambOp::decompose(OpBuilder &builder) {
  UpdateBuilder b(*this, builder);
  Value w = getW(), m = b.average(getM(), "beta1", getG());
  Value v = b.averageSquare(getV(), "beta2", getG());
  Value r = b.overRoot(b.corrected(m, b.control(getBc1(), w)),
                       b.corrected(v, b.control(getBc2(), w)));
  r = b.withDecay(r, w);
  Value normW = b.norm(w), normR = b.norm(r), zero = b.splatLike(normW, 0);
  Value one = b.splatLike(normW, 1);
  Value usable =
      b.make<AndOp>(b.compare(normW, "gt", zero), b.compare(normR, "gt", zero));
  Value trust = b.select(usable, b.div(normW, b.select(usable, normR, one)), one);
  return {b.sub(w, b.times(r, b.mul(b.control(getLr(), w), trust))), m, v};
}

LogicalResult LionOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                       Adaptor adaptor, SmallVectorImpl<Type> &results) {
  results.append(2, adaptor.getW().getType());
  return checkUpdate(loc, "lion", adaptor.getW(), {adaptor.getG(), adaptor.getM()});
}

LogicalResult LionOp::evaluate(Evaluation &eval) {
  double lr = eval.operand(3).reals[0], keep = 1 - lr * hyperOf(eval, "weight_decay");
  double beta1 = hyperOf(eval, "beta1"), beta2 = hyperOf(eval, "beta2");
  for (int64_t i = 0, e = eval.operand(0).size(); i < e; ++i) {
    double g = eval.operand(1).reals[i], m = eval.operand(2).reals[i];
    double direction = moved(m, beta1, g);
    double sign = (direction > 0) - (direction < 0);
    eval.result(0).reals[i] = eval.round(eval.operand(0).reals[i] * keep - lr * sign);
    eval.result(1).reals[i] = eval.round(moved(m, beta2, g));
  }
  return success();
}

SmallVector<Value> LionOp::decompose(OpBuilder &builder) {
  UpdateBuilder b(*this, builder);
  Value lr = b.control(getLr(), getW());
  Value sign = b.make<SignOp>(b.average(getM(), "beta1", getG()));
  Value w = b.decayed(getW(), lr);
  return {b.sub(w, b.times(sign, lr)), b.average(getM(), "beta2", getG())};
}

} // namespace sluice::graph
