// Losses.
#include "frontend/onnx/OpTable.h"

namespace sluice::frontend {

namespace {

/// [N, C, d...] as rows [N * d..., C].
Value rowsOfClasses(Emitter &e, Value x) {
  if (!x)
    return x;
  Ints order = range(rankOf(x));
  order.erase(order.begin() + 1);
  order.push_back(1);
  int64_t classes = dimOf(x, 1);
  Value moved = e.transpose(x, order);
  int64_t rows = classes == 0 ? 0 : elementCount(shapeOf(x)) / classes;
  return e.reshape(moved, {rows, classes});
}

struct LossOperands {
  Value scores, labels, weights;
  std::string reduction;
  int64_t ignore;
  bool hasIgnore;
};
std::optional<LossOperands> readLoss(Node &n) {
  LossOperands loss{n.in(0),
                    n.in(1),
                    n.has(2) ? n.in(2) : Value(),
                    n.s("reduction", "mean"),
                    n.i("ignore_index", -100),
                    n.hasAttr("ignore_index")};
  if (!loss.scores || !loss.labels || (n.has(2) && !loss.weights))
    return std::nullopt;
  Ints expected(shapeOf(loss.scores));
  if (expected.size() < 2) {
    n.e.fail("the scores need a rank of 2 or more");
    return std::nullopt;
  }
  expected.erase(expected.begin() + 1);
  if (shapeOf(loss.labels) != llvm::ArrayRef<int64_t>(expected)) {
    n.e.fail("labels have shape " + shapeText(shapeOf(loss.labels)) + ", expected " +
             shapeText(expected));
    return std::nullopt;
  }
  if (loss.reduction != "mean" && loss.reduction != "sum" && loss.reduction != "none") {
    n.e.fail("reduction '" + loss.reduction + "' is unknown");
    return std::nullopt;
  }
  return loss;
}

/// -weight * logProbabilities[label] per element, and the weights; both 0 where ignored.
std::pair<Value, Value> elementLosses(Node &n, const LossOperands &loss,
                                      Value logProbabilities) {
  Emitter &e = n.e;
  Value labels = e.unsqueeze(loss.labels, 1);
  Value ignored = loss.hasIgnore ? e.cmp(labels, double(loss.ignore), "eq") : Value();
  if (ignored) // an index that can be read
    labels = e.select(ignored, e.like(labels, 0), labels);
  Value picked = e.op("gather_elements", {logProbabilities, labels}, {e.i64("axis", 1)});
  Value weight = loss.weights ? e.gather(loss.weights, labels, 0) : e.like(picked, 1);
  if (ignored)
    weight = e.select(ignored, e.like(weight, 0), weight);
  return {e.squeeze(e.un("neg", e.mul(picked, weight)), 1), e.squeeze(weight, 1)};
}

Value reduceLoss(Emitter &e, const LossOperands &loss, Value losses, Value weights) {
  if (!losses || loss.reduction == "none")
    return losses;
  Ints all = range(rankOf(losses));
  Value total = e.reduce(losses, "sum", all, false);
  return loss.reduction == "sum" ? total
                                 : e.div(total, e.reduce(weights, "sum", all, false));
}

LogicalResult importNll(Node &n) {
  auto loss = readLoss(n);
  if (!loss)
    return failure();
  auto [losses, weights] = elementLosses(n, *loss, loss->scores);
  return n.out(reduceLoss(n.e, *loss, losses, weights));
}

LogicalResult importCrossEntropy(Node &n) {
  Emitter &e = n.e;
  auto loss = readLoss(n);
  if (!loss)
    return failure();
  Value logProbabilities;
  if (n.wants(1) || loss->reduction == "none")
    logProbabilities = e.op("log_softmax", {loss->scores}, {e.i64("axis", 1)});
  if (n.wants(1) && failed(n.out(1, logProbabilities)))
    return failure();
  if (loss->reduction == "none") {
    auto [losses, weights] = elementLosses(n, *loss, logProbabilities);
    return n.out(losses);
  }
  Value labels = e.reshape(loss->labels, {elementCount(shapeOf(loss->labels))});
  llvm::SmallVector<Value> operands = {rowsOfClasses(e, loss->scores), labels};
  if (loss->weights)
    operands.push_back(loss->weights);
  // Without the attribute no label is ignored; none has the smallest integer.
  auto results = e.ops("cross_entropy", operands,
                       {e.i64("ignore_index", loss->hasIgnore ? loss->ignore : INT64_MIN),
                        e.f64("smoothing", 0)});
  return n.out(loss->reduction == "sum" ? results[0] : e.div(results[0], results[1]));
}

} // namespace

void addLoss(OpTable &table) {
  table["NegativeLogLikelihoodLoss"] = importNll;
  table["SoftmaxCrossEntropyLoss"] = importCrossEntropy;
}

} // namespace sluice::frontend
