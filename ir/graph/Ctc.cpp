// The CTC loss: its reference in double, straight from the recursions of Graves et al.
// (2006). kernels/cpu/Ctc.cpp is what runs.

#include "ir/graph/GraphBuilder.h"
#include "ir/graph/Interpreter.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace mlir;

namespace sluice::graph {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

double logAdd(double a, double b) {
  double most = std::max(a, b);
  return most == -infinity ? most
                           : most + std::log(std::exp(a - most) + std::exp(b - most));
}

/// One sample: labels with blanks between and around them, and the log probabilities of
/// all ways to (alpha) and from (beta) each state of each frame.
struct Lattice {
  std::vector<int64_t> states;
  std::vector<std::vector<double>> alpha, beta; // both with the frame's own emission
  double logLikelihood = -infinity;

  Lattice(std::vector<int64_t> labelled, const std::vector<std::vector<double>> &logProbs)
      : states(std::move(labelled)) {
    int64_t frames = logProbs.size(), count = states.size();
    alpha.assign(frames, std::vector<double>(count, -infinity));
    beta = alpha;
    for (int64_t t = 0; t < frames; ++t)
      for (int64_t s = 0; s < count; ++s) {
        double ways = t == 0 ? (s < 2 ? 0 : -infinity) : -infinity;
        for (int64_t step = 0; t > 0 && step <= 2 && step <= s; ++step)
          if (step < 2 || skips(s))
            ways = logAdd(ways, alpha[t - 1][s - step]);
        alpha[t][s] = ways + logProbs[t][states[s]];
      }
    for (int64_t t = frames - 1; t >= 0; --t)
      for (int64_t s = 0; s < count; ++s) {
        double ways = t == frames - 1 && s >= count - 2 ? 0 : -infinity;
        for (int64_t step = 0; t < frames - 1 && step <= 2 && s + step < count; ++step)
          if (step < 2 || skips(s + 2))
            ways = logAdd(ways, beta[t + 1][s + step]);
        beta[t][s] = ways + logProbs[t][states[s]];
      }
    if (frames == 0)
      logLikelihood = count == 1 ? 0 : -infinity;
    for (int64_t s = std::max<int64_t>(count - 2, 0); frames > 0 && s < count; ++s)
      logLikelihood = logAdd(logLikelihood, alpha[frames - 1][s]);
  }

private:
  bool skips(int64_t s) const { return s % 2 == 1 && states[s] != states[s - 2]; }
};

/// What both operations have in common.
template <class OpT> struct CtcSample {
  std::vector<std::vector<double>> logProbs;
  std::vector<int64_t> states;
  double factor = 1;

  CtcSample(OpT op, Evaluation &eval, int64_t n) {
    const HostTensor &x = eval.operand(0), &targets = eval.operand(1);
    int64_t frames = x.shape[1], classes = x.shape[2], labels = targets.shape[1];
    int64_t used = std::clamp<int64_t>(eval.operand(2).integers[n], 0, frames);
    for (int64_t t = 0; t < used; ++t) {
      auto row = x.reals.begin() + (n * frames + t) * classes;
      logProbs.emplace_back(row, row + classes);
    }
    int64_t blank = op.getBlank(), length = 0;
    states.push_back(blank);
    for (; length < std::min(eval.operand(3).integers[n], labels); ++length) {
      int64_t label = targets.integers[n * labels + length];
      if (label < 0 || label >= classes)
        break;
      states.push_back(label);
      states.push_back(blank);
    }
    if (op.getPerLabel())
      factor = 1.0 / std::max<int64_t>(length, 1);
  }
};

LogicalResult checkCtc(std::optional<Location> loc, StringRef name, ValueRange operands,
                       int64_t blank) {
  auto logProbs = tensorType(operands[0]), targets = tensorType(operands[1]);
  if (logProbs.getRank() != 3)
    return emitOptionalError(loc, "log probabilities of '", name, "' have type ",
                             logProbs, ", expected rank 3 (samples, frames, classes)");
  if (targets.getRank() != 2 || targets.getDimSize(0) != logProbs.getDimSize(0))
    return emitOptionalError(loc, "targets of '", name, "' have type ", targets,
                             ", expected a row for each of the ", logProbs.getDimSize(0),
                             " samples");
  for (Value lengths : operands.drop_front(2))
    if (tensorType(lengths).getShape() != logProbs.getShape().take_front(1))
      return emitOptionalError(loc, "lengths of '", name, "' have type ",
                               lengths.getType(), ", expected one for each of the ",
                               logProbs.getDimSize(0), " samples");
  if (blank < 0 || blank >= logProbs.getDimSize(2))
    return emitOptionalError(loc, "'blank' of '", name, "' is ", blank,
                             ", expected one of the ", logProbs.getDimSize(2),
                             " classes");
  return success();
}

/// About three exponentials and a logarithm for each state of each frame.
double ctcFlops(Value logProbs, Value targets, double passes) {
  auto x = tensorType(logProbs), y = tensorType(targets);
  return passes * 100.0 * x.getDimSize(0) * x.getDimSize(1) * (2 * y.getDimSize(1) + 1);
}

} // namespace

LogicalResult CtcLossOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                          Adaptor adaptor,
                                          SmallVectorImpl<Type> &results) {
  if (failed(checkCtc(loc, "ctc_loss", adaptor.getOperands(), adaptor.getBlank())))
    return failure();
  auto type = tensorType(adaptor.getLogProbs());
  results.push_back(type.clone(type.getShape().take_front(1)));
  return success();
}

LogicalResult CtcLossOp::evaluate(Evaluation &eval) {
  for (int64_t n = 0; n < eval.operand(0).shape[0]; ++n) {
    CtcSample sample(*this, eval, n);
    double loss = -Lattice(sample.states, sample.logProbs).logLikelihood;
    bool dropped = getZeroInfinity() && loss == infinity;
    eval.result(0).reals[n] = eval.round(dropped ? 0 : loss * sample.factor);
  }
  return success();
}

LogicalResult CtcLossOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  Value dy = context.cotangent();
  if (!dy || !context.needs(0))
    return success();
  GraphBuilder b(getLoc(), builder);
  Value each = b.make<CtcLossGradOp>(getLogProbs(), getTargets(), getInputLengths(),
                                     getTargetLengths(), getBlank(), getZeroInfinity(),
                                     getPerLabel());
  context.set(0, b.mul(each, b.spread(dy, tensorType(each).getShape(), {1, 2})));
  return success();
}

LogicalResult CtcLossGradOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                              Adaptor adaptor,
                                              SmallVectorImpl<Type> &results) {
  results.push_back(adaptor.getLogProbs().getType());
  return checkCtc(loc, "ctc_loss_grad", adaptor.getOperands(), adaptor.getBlank());
}

LogicalResult CtcLossGradOp::evaluate(Evaluation &eval) {
  std::vector<int64_t> shape = eval.operand(0).shape;
  for (int64_t n = 0; n < shape[0]; ++n) {
    CtcSample sample(*this, eval, n);
    Lattice lattice(sample.states, sample.logProbs);
    if (getZeroInfinity() && lattice.logLikelihood == -infinity)
      continue;
    for (size_t t = 0; t < sample.logProbs.size(); ++t)
      for (size_t s = 0; s < sample.states.size(); ++s) {
        int64_t label = sample.states[s];
        double emission = sample.logProbs[t][label];
        double &grad = eval.result(0).reals[(n * shape[1] + t) * shape[2] + label];
        if (emission != -infinity)
          grad -= sample.factor * std::exp(lattice.alpha[t][s] + lattice.beta[t][s] -
                                           emission - lattice.logLikelihood);
      }
  }
  for (double &grad : eval.result(0).reals)
    grad = eval.round(grad);
  return success();
}

double CtcLossOp::flops() { return ctcFlops(getLogProbs(), getTargets(), 1); }
double CtcLossGradOp::flops() { return ctcFlops(getLogProbs(), getTargets(), 2); }

} // namespace sluice::graph
