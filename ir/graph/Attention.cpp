// Attention as one operation. The reference computes whole rows of scores; what runs is
// kernels/cpu/Attention.cpp.

#include "ir/graph/Attention.h"
#include "ir/graph/GraphBuilder.h"
#include "ir/graph/Interpreter.h"
#include "ir/graph/Philox.h"
#include "ir/graph/Shapes.h"

#include <cmath>
#include <limits>

using namespace mlir;

#define GET_OP_CLASSES
#include "ir/graph/Attention.cpp.inc"

namespace sluice::graph {

AttentionSizes::AttentionSizes(Value q, Value k, Value v) {
  auto qs = tensorType(q).getShape(), ks = tensorType(k).getShape();
  batch = qs[0], heads = qs[1], queries = qs[2], depth = qs[3];
  kvHeads = ks[1], keys = ks[2], valueDepth = tensorType(v).getDimSize(3);
}

double attentionFlops(const AttentionSizes &s, std::optional<int64_t> causal,
                      int64_t products) {
  double scores = double(s.queries) * double(s.keys);
  if (causal) {
    scores = 0;
    for (int64_t i = 0; i < s.queries; ++i)
      scores += double(std::clamp<int64_t>(i + 1 + *causal, 0, s.keys));
  }
  double perScore = double(products) * double(s.depth + s.valueDepth) + 12;
  return double(s.batch) * double(s.heads) * scores * perScore;
}

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

std::optional<int64_t> causalOf(std::optional<uint64_t> causal) {
  return causal ? std::optional<int64_t>(int64_t(*causal)) : std::nullopt;
}

/// 1 / (1 - ratio) in f32, and 0 where nothing is kept.
double keptFactor(double ratio) {
  float kept = 1.0f - static_cast<float>(ratio);
  return kept > 0 ? static_cast<double>(1.0f / kept) : 0;
}

template <class AdaptorT>
LogicalResult checkAttention(StringRef op, std::optional<Location> loc, AdaptorT a) {
  for (Value x : {a.getQ(), a.getK(), a.getV()})
    if (tensorType(x).getRank() != 4)
      return emitOptionalError(loc, "an operand of '", op, "' has type ", x.getType(),
                               ", expected rank 4 (batch, heads, positions, size)");
  auto q = tensorType(a.getQ()), k = tensorType(a.getK()), v = tensorType(a.getV());
  bool fits = k.getDimSize(0) == q.getDimSize(0) && v.getDimSize(0) == q.getDimSize(0) &&
              k.getDimSize(3) == q.getDimSize(3) && v.getDimSize(2) == k.getDimSize(2) &&
              v.getDimSize(1) == k.getDimSize(1) && k.getDimSize(1) > 0 &&
              q.getDimSize(1) % k.getDimSize(1) == 0;
  if (!fits || q.getElementType() != k.getElementType() ||
      q.getElementType() != v.getElementType())
    return emitOptionalError(loc, "operands of '", op, "' have types ", q, ", ", k,
                             " and ", v,
                             ", expected [B, H, Tq, D], [B, G, Tk, D] and [B, G, Tk, E] "
                             "of one element type where G divides H");
  if (a.getMask()) {
    auto mask = tensorType(a.getMask());
    int64_t full[] = {q.getDimSize(0), q.getDimSize(1), q.getDimSize(2), k.getDimSize(2)};
    bool repeats = mask.getRank() == 4;
    for (int64_t d = 0; repeats && d < 4; ++d)
      repeats = mask.getDimSize(d) == 1 || mask.getDimSize(d) == full[d];
    if (!repeats)
      return emitOptionalError(loc, "the mask of '", op, "' has type ", mask,
                               ", expected ", listText(full), " with some dimensions 1");
  }
  if (!a.getRandom().empty() && a.getRandom().size() != 3)
    return emitOptionalError(loc, "'", op, "' has ", a.getRandom().size(),
                             " operands for random numbers, expected none or seed, "
                             "update and sample");
  double ratio = a.getRatio().convertToDouble();
  if (!(ratio >= 0 && ratio <= 1))
    return emitOptionalError(loc, "ratio of '", op, "' is ", ratio, ", expected 0 to 1");
  int64_t samples = a.getSamples();
  if (samples < 0 || (samples > 0 && q.getDimSize(0) % samples != 0))
    return emitOptionalError(loc, "'", op, "' splits ", q, " over ", samples,
                             " samples, expected a divisor of dimension 0");
  return success();
}

/// Rows of scores and of what is dropped, as both operations compute them.
template <class Op> struct Rows {
  Evaluation &eval;
  AttentionSizes s;
  const HostTensor &q, &k, &v;
  const HostTensor *mask = nullptr;
  RandomKey key;
  uint64_t firstSample = 0;
  double scale, ratio;
  std::optional<int64_t> causal;
  int64_t samples;
  bool drops;

  Rows(Op op, Evaluation &eval)
      : eval(eval), s(op), q(eval.operand(0)), k(eval.operand(1)), v(eval.operand(2)),
        scale(op.getScale().convertToDouble()), ratio(op.getRatio().convertToDouble()),
        causal(causalOf(op.getCausal())), samples(op.getSamples()),
        drops(!op.getRandom().empty()) {
    unsigned next = std::is_same_v<Op, AttentionOp> ? 3 : 6;
    if (op.getMask())
      mask = &eval.operand(next++);
    if (!drops)
      return;
    key.seed = eval.operand(next).integers[0];
    key.update = eval.operand(next + 1).integers[0];
    firstSample = eval.operand(next + 2).integers[0];
    key.id = op.getId();
  }

  int64_t kvHead(int64_t h) const { return h / (s.heads / s.kvHeads); }
  int64_t queryRow(int64_t b, int64_t h, int64_t i) const {
    return (b * s.heads + h) * s.queries + i;
  }
  int64_t statsRow(int64_t b, int64_t h, int64_t i) const {
    return (b * s.heads + h) * 2 * s.queries + i;
  }
  int64_t keyRow(int64_t b, int64_t h, int64_t j) const {
    return (b * s.kvHeads + kvHead(h)) * s.keys + j;
  }

  std::vector<double> scores(int64_t b, int64_t h, int64_t i) const {
    std::vector<double> t(s.keys);
    for (int64_t j = 0; j < s.keys; ++j) {
      double sum = 0;
      for (int64_t d = 0; d < s.depth; ++d)
        sum += q.reals[queryRow(b, h, i) * s.depth + d] *
               k.reals[keyRow(b, h, j) * s.depth + d];
      t[j] = causal && j > i + *causal ? -infinity : scale * sum + masked(b, h, i, j);
    }
    return t;
  }
  double masked(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (!mask)
      return 0;
    int64_t index[] = {b, h, i, j}, at = 0;
    for (int d = 0; d < 4; ++d)
      at = at * mask->shape[d] + (mask->shape[d] == 1 ? 0 : index[d]);
    return mask->reals[at];
  }
  /// 0 or what a kept probability is multiplied by.
  double dropFactor(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (!drops)
      return 1;
    int64_t share = samples > 0 ? s.batch / samples : s.batch;
    RandomKey of = key;
    of.sample = samples > 0 ? firstSample + b / share : 0;
    int64_t row = ((b % share) * s.heads + h) * s.queries + i;
    bool keep = philoxUniform(of, row * s.keys + j) >= static_cast<float>(ratio);
    return keep ? keptFactor(ratio) : 0;
  }
  double narrow(double x) const { return toNarrow(eval.round(x), q.elementType); }
};

/// Of rows [B, H, Tq, E]: the largest score and the sum of each.
SmallVector<int64_t> statsShape(ArrayRef<int64_t> rows) {
  return {rows[0], rows[1], 2, rows[2]};
}

double largestOf(const std::vector<double> &t) {
  double most = -infinity;
  for (double x : t)
    most = std::max(most, x);
  return most;
}

/// The cotangents of one pair of query head and batch.
struct GradientSums {
  std::vector<double> dq, dk, dv;
};

} // namespace

LogicalResult AttentionOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                            Adaptor adaptor,
                                            SmallVectorImpl<Type> &results) {
  if (failed(checkAttention("attention", loc, adaptor)))
    return failure();
  auto q = tensorType(adaptor.getQ());
  SmallVector<int64_t> shape(q.getShape());
  Type element = q.getElementType();
  results.push_back(q.clone(shape, productType(element, adaptor.getRoundTo())));
  auto out = cast<RankedTensorType>(results.back());
  shape[3] = tensorType(adaptor.getV()).getDimSize(3);
  results.back() = out.clone(shape);
  results.push_back(RankedTensorType::get(statsShape(shape), sumType(element)));
  return success();
}

LogicalResult AttentionOp::evaluate(Evaluation &eval) {
  Rows<AttentionOp> rows(*this, eval);
  const AttentionSizes &s = rows.s;
  HostTensor &out = eval.result(0), &stats = eval.result(1);
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t h = 0; h < s.heads; ++h)
      for (int64_t i = 0; i < s.queries; ++i) {
        std::vector<double> t = rows.scores(b, h, i), sums(s.valueDepth, 0);
        double most = largestOf(t), base = most == -infinity ? 0 : most, total = 0;
        for (int64_t j = 0; j < s.keys; ++j) {
          double e = std::exp(t[j] - base);
          total += e;
          double p = rows.narrow(e * rows.dropFactor(b, h, i, j));
          for (int64_t d = 0; d < s.valueDepth; ++d)
            sums[d] += p * rows.v.reals[rows.keyRow(b, h, j) * s.valueDepth + d];
        }
        int64_t row = rows.queryRow(b, h, i);
        bool empty = most == -infinity;
        int64_t at = rows.statsRow(b, h, i);
        stats.reals[at] = most;
        stats.reals[at + s.queries] = eval.round(total);
        for (int64_t d = 0; d < s.valueDepth; ++d)
          out.reals[row * s.valueDepth + d] =
              toNarrow(eval.round(empty ? 0 : sums[d] / total), out.elementType);
      }
  return success();
}

LogicalResult AttentionOp::buildGradient(OpBuilder &builder, GradientContext &context) {
  GraphBuilder b(getLoc(), builder);
  Value dout = context.cotangent(0);
  if (failed(expectWideProduct(*this, getQ())))
    return failure();
  if (getMask() && context.needs(3))
    return emitOpError("has no gradient in its mask; leave such an attention unfused");
  if (context.cotangent(1))
    return emitOpError("has no gradient of its statistics");
  if (!dout)
    return success();
  auto grad = b.create<AttentionGradOp>(getQ(), getK(), getV(), dout, getOut(),
                                        getStats(), getMask(), getRandom(),
                                        getScaleAttr(), getCausalAttr(), getRatioAttr(),
                                        getIdAttr(), getSamplesAttr(), TypeAttr());
  for (unsigned i = 0; i < 3; ++i)
    if (context.needs(i))
      context.set(i, grad->getResult(i));
  return success();
}

SmallVector<Value> AttentionOp::evaluationForm(OpBuilder &builder) {
  if (getRandom().empty())
    return {getOut(), getStats()};
  auto form = builder.create<AttentionOp>(
      getLoc(), getQ(), getK(), getV(), getMask(), ValueRange(), getScaleAttr(),
      getCausalAttr(), builder.getF64FloatAttr(0), builder.getI64IntegerAttr(0),
      builder.getI64IntegerAttr(0), getRoundToAttr());
  return {form.getOut(), form.getStats()};
}

/// Every query head with keys or values of its own.
static Value repeatHeads(GraphBuilder &b, Value x, int64_t heads) {
  SmallVector<int64_t> shape(tensorType(x).getShape());
  int64_t own = shape[1];
  if (own == heads)
    return x;
  shape.insert(shape.begin() + 2, 1);
  Value apart = b.reshape(x, shape);
  shape[2] = heads / own;
  Value repeated = b.broadcast(apart, shape);
  return b.reshape(repeated, {shape[0], heads, shape[3], shape[4]});
}

SmallVector<Value> AttentionOp::reference(OpBuilder &builder) {
  GraphBuilder b(getLoc(), builder);
  AttentionSizes s(*this);
  Value k = repeatHeads(b, getK(), s.heads), v = repeatHeads(b, getV(), s.heads);
  const int64_t heads[] = {0, 1}, last[] = {3}, keys[] = {2};
  Value t = b.make<ContractOp>(getQ(), k, ArrayRef(heads), ArrayRef(heads),
                               ArrayRef(last), ArrayRef(last));
  t = b.scale(t, getScale().convertToDouble());
  ArrayRef<int64_t> shape = tensorType(t).getShape();
  if (getMask())
    t = b.add(t, b.broadcast(getMask(), shape));
  if (getCausal()) {
    Value query = b.create<IotaOp>(shape, 2), key = b.create<IotaOp>(shape, 3);
    Value sees = b.compare(key, "le", b.shift(query, double(*causalOf(getCausal()))));
    t = b.select(sees, t, b.splatLike(t, -infinity));
  }
  Value p = b.make<SoftmaxOp>(t, 3);
  if (!getRandom().empty())
    p = b.make<DropoutOp>(p, getRandom()[0], getRandom()[1], getRandom()[2], getRatio(),
                          getId(), getSamples());
  Value most = b.reduce(t, "max", {3}, /*keep=*/true);
  Value none = b.compare(most, "eq", b.splatLike(most, -infinity));
  Value base = b.select(none, b.splatLike(most, 0), most);
  Value sum = b.sum(b.exp(b.sub(t, b.broadcast(base, shape))), {3}, /*keep=*/true);
  auto rows = statsShape(shape);
  rows[2] = 1;
  Value stats =
      b.make<ConcatOp>(ValueRange{b.reshape(most, rows), b.reshape(sum, rows)}, 2);
  Value y = b.make<ContractOp>(p, v, ArrayRef(heads), ArrayRef(heads), ArrayRef(last),
                               ArrayRef(keys));
  return {y, stats};
}

LogicalResult AttentionGradOp::inferReturnTypes(MLIRContext *,
                                                std::optional<Location> loc,
                                                Adaptor adaptor,
                                                SmallVectorImpl<Type> &results) {
  if (failed(checkAttention("attention_grad", loc, adaptor)))
    return failure();
  auto q = tensorType(adaptor.getQ());
  SmallVector<int64_t> out(q.getShape());
  out[3] = tensorType(adaptor.getV()).getDimSize(3);
  for (Value x : {adaptor.getDout(), adaptor.getOut()})
    if (tensorType(x).getShape() != ArrayRef<int64_t>(out))
      return emitOptionalError(loc, "an operand of 'attention_grad' has type ",
                               x.getType(), ", expected ", listText(out));
  if (tensorType(adaptor.getStats()).getShape() != ArrayRef(statsShape(out)))
    return emitOptionalError(loc, "stats of 'attention_grad' have type ",
                             adaptor.getStats().getType(), ", expected ",
                             listText(statsShape(out)));
  for (Value x : {adaptor.getQ(), adaptor.getK(), adaptor.getV()})
    results.push_back(
        tensorType(x).clone(productType(q.getElementType(), adaptor.getRoundTo())));
  return success();
}

namespace {

/// Adds what the row (b, h, i) gives.
void addRow(const Rows<AttentionGradOp> &rows, Evaluation &eval, int64_t b, int64_t h,
            int64_t i, GradientSums &sums) {
  const AttentionSizes &s = rows.s;
  int64_t row = rows.queryRow(b, h, i);
  const double *dout = eval.operand(3).reals.data() + row * s.valueDepth;
  const double *out = eval.operand(4).reals.data() + row * s.valueDepth;
  const double *stats = eval.operand(5).reals.data() + rows.statsRow(b, h, i);
  double base = stats[0] == -infinity ? 0 : stats[0], total = stats[s.queries];
  double delta = 0;
  for (int64_t d = 0; d < s.valueDepth; ++d)
    delta += dout[d] * out[d];
  std::vector<double> t = rows.scores(b, h, i);
  for (int64_t j = 0; j < s.keys; ++j) {
    int64_t key = rows.keyRow(b, h, j);
    double p = total == 0 ? 0 : std::exp(t[j] - base) / total,
           factor = rows.dropFactor(b, h, i, j), dp = 0;
    double dropped = rows.narrow(p * factor);
    for (int64_t d = 0; d < s.valueDepth; ++d) {
      dp += dout[d] * rows.v.reals[key * s.valueDepth + d];
      sums.dv[key * s.valueDepth + d] += dropped * dout[d];
    }
    double ds = rows.scale * rows.narrow(p * (dp * factor - delta));
    for (int64_t d = 0; d < s.depth; ++d) {
      sums.dq[row * s.depth + d] += ds * rows.k.reals[key * s.depth + d];
      sums.dk[key * s.depth + d] += ds * rows.q.reals[row * s.depth + d];
    }
  }
}

} // namespace

LogicalResult AttentionGradOp::evaluate(Evaluation &eval) {
  Rows<AttentionGradOp> rows(*this, eval);
  const AttentionSizes &s = rows.s;
  GradientSums sums;
  std::vector<double> *all[] = {&sums.dq, &sums.dk, &sums.dv};
  for (unsigned r = 0; r < 3; ++r)
    all[r]->assign(eval.result(r).reals.size(), 0.0);
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t h = 0; h < s.heads; ++h)
      for (int64_t i = 0; i < s.queries; ++i)
        addRow(rows, eval, b, h, i, sums);
  for (unsigned r = 0; r < 3; ++r)
    for (size_t i = 0; i < all[r]->size(); ++i)
      eval.result(r).reals[i] =
          toNarrow(eval.round((*all[r])[i]), eval.result(r).elementType);
  return success();
}

double AttentionOp::flops() {
  return attentionFlops(AttentionSizes(*this), causalOf(getCausal()), 2);
}
double AttentionGradOp::flops() {
  return attentionFlops(AttentionSizes(*this), causalOf(getCausal()), 5);
}

// The mask, the statistics and the random key are exact.
PrecisionKind AttentionOp::precision() { return PrecisionKind::Product; }
unsigned AttentionOp::roundedOperands() { return 3; }
unsigned AttentionOp::roundedResults() { return 1; }
PrecisionKind AttentionGradOp::precision() { return PrecisionKind::Product; }
unsigned AttentionGradOp::roundedOperands() { return 5; }
unsigned AttentionGradOp::roundedResults() { return 3; }

} // namespace sluice::graph
