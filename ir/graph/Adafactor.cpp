// Adafactor: second moments of a matrix kept as a row and a column.

#include "ir/graph/OptimizerParts.h"
#include "ir/graph/Shapes.h"

using namespace mlir;

namespace sluice::graph {

/// The types of the state: row_var and col_var of matrices, else variance.
static SmallVector<Type> stateTypes(RankedTensorType w) {
  if (w.getRank() < 2)
    return {w};
  SmallVector<int64_t> rows(w.getShape()), columns(w.getShape());
  rows[w.getRank() - 1] = 1;
  columns[w.getRank() - 2] = 1;
  return {w.clone(rows), w.clone(columns)};
}

LogicalResult AdafactorOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                            Adaptor adaptor,
                                            SmallVectorImpl<Type> &results) {
  SmallVector<Type> state = stateTypes(tensorType(adaptor.getW()));
  if (!llvm::equal(adaptor.getState().getTypes(), state))
    return emitOptionalError(loc, "'adafactor' has ", adaptor.getState().size(),
                             " tensors of state, expected ", state.size(),
                             " with the types of row_var and col_var, or of variance "
                             "below rank 2");
  results.push_back(adaptor.getW().getType());
  llvm::append_range(results, state);
  return checkUpdate(loc, "adafactor", adaptor.getW(), {adaptor.getG()});
}

/// Updates the averages of rows and columns and returns their estimate per element.
static std::vector<double> factoredVariance(Evaluation &eval, double share, double eps) {
  const HostTensor &g = eval.operand(1);
  int64_t rank = g.shape.size(), rows = g.shape[rank - 2], columns = g.shape[rank - 1];
  std::vector<double> estimate(g.size());
  for (int64_t first = 0; first < g.size(); first += rows * columns) {
    int64_t matrix = first / (rows * columns);
    double *row = &eval.result(1).reals[matrix * rows], mean = 0;
    double *column = &eval.result(2).reals[matrix * columns];
    for (int64_t i = 0; i < rows * columns; ++i) {
      double square = g.reals[first + i] * g.reals[first + i];
      row[i / columns] += share * square / columns;
      column[i % columns] += share * square / rows;
    }
    for (int64_t r = 0; r < rows; ++r) {
      row[r] += (1 - share) * eval.operand(4).reals[matrix * rows + r];
      mean += row[r] / rows;
    }
    for (int64_t c = 0; c < columns; ++c)
      column[c] += (1 - share) * eval.operand(5).reals[matrix * columns + c];
    for (int64_t i = 0; i < rows * columns; ++i)
      estimate[first + i] = row[i / columns] * column[i % columns] / std::max(mean, eps);
  }
  return estimate;
}

static double rootMeanSquare(const std::vector<double> &x) {
  double sum = 0;
  for (double value : x)
    sum += value * value;
  return std::sqrt(sum / std::max<size_t>(x.size(), 1));
}

LogicalResult AdafactorOp::evaluate(Evaluation &eval) {
  const HostTensor &w = eval.operand(0), &g = eval.operand(1);
  double lr = eval.operand(2).reals[0], t = eval.operand(3).integers[0] + 1.0;
  double share = std::pow(t, hyperOf(eval, "beta2_decay"));
  double eps1 = hyperOf(eval, "eps1");
  std::vector<double> variance;
  if (w.shape.size() >= 2) {
    variance = factoredVariance(eval, share, eps1);
  } else {
    for (int64_t i = 0; i < w.size(); ++i)
      variance.push_back(
          moved(eval.operand(4).reals[i], 1 - share, g.reals[i] * g.reals[i]));
    eval.result(1).reals = variance;
  }
  for (unsigned r = 1; r < eval.op->getNumResults(); ++r)
    for (double &x : eval.result(r).reals)
      x = eval.round(x);
  std::vector<double> u;
  for (int64_t i = 0; i < w.size(); ++i)
    u.push_back(g.reals[i] / std::sqrt(std::max(variance[i], eps1 * eps1)));
  double rate = std::max(hyperOf(eval, "eps2"), rootMeanSquare(w.reals)) *
                std::min(lr, 1 / std::sqrt(t)) /
                std::max(1.0, rootMeanSquare(u) / hyperOf(eval, "d"));
  double keep = 1 - lr * hyperOf(eval, "weight_decay");
  for (int64_t i = 0; i < w.size(); ++i)
    eval.result(0).reals[i] = eval.round(w.reals[i] * keep - rate * u[i]);
  return success();
}

namespace {

class AdafactorParts {
public:
  AdafactorParts(AdafactorOp op, UpdateBuilder &b) : op(op), b(b) {
    Value update = b.cast(op.getUpdate(), tensorType(op.getW()).getElementType());
    t = b.shift(update, 1);
    share = b.exp(b.scale(b.log(t), b.hyper("beta2_decay")));
  }

  /// The new state, and the estimate of the variance last.
  SmallVector<Value> variance() {
    Value square = b.square(op.getG());
    auto type = tensorType(op.getW());
    int64_t rank = type.getRank();
    if (rank < 2) {
      Value average = toShare(op.getState()[0], square);
      return {average, average};
    }
    int64_t rows = type.getDimSize(rank - 2), columns = type.getDimSize(rank - 1);
    Value row = toShare(op.getState()[0],
                        b.scale(b.sum(square, rank - 1, /*keep=*/true), 1.0 / columns));
    Value column = toShare(op.getState()[1],
                           b.scale(b.sum(square, rank - 2, /*keep=*/true), 1.0 / rows));
    Value mean = b.scale(b.sum(row, rank - 2, /*keep=*/true), 1.0 / rows);
    mean = b.make<MaxOp>(mean, b.like(mean, b.hyper("eps1")));
    Value share = b.div(row, b.broadcastLike(mean, row)); // first: no product overflows
    return {row, column,
            b.mul(b.broadcastLike(share, square), b.broadcastLike(column, square))};
  }

  Value rate(Value u) {
    Value w = op.getW(), lr = b.control(op.getLr(), w);
    Value size = rootMeanSquare(w);
    size = b.make<MaxOp>(size, b.like(size, b.hyper("eps2")));
    Value slow = b.div(b.splatLike(t, 1), b.sqrt(t));
    Value excess = rootMeanSquare(u);
    excess = b.div(excess, b.like(excess, b.hyper("d")));
    excess = b.make<MaxOp>(excess, b.splatLike(excess, 1));
    return b.div(b.mul(size, b.make<MinOp>(lr, slow)), excess);
  }

private:
  Value toShare(Value old, Value x) {
    Value rest = b.sub(b.splatLike(share, 1), share);
    return b.add(b.times(old, rest), b.times(x, share));
  }
  Value rootMeanSquare(Value x) {
    double count = std::max<int64_t>(tensorType(x).getNumElements(), 1);
    return b.sqrt(b.scale(b.sumAll(b.square(x)), 1 / count));
  }

  AdafactorOp op;
  UpdateBuilder &b;
  Value t, share;
};

} // namespace

SmallVector<Value> AdafactorOp::decompose(OpBuilder &builder) {
  UpdateBuilder b(*this, builder);
  AdafactorParts parts(*this, b);
  SmallVector<Value> state = parts.variance();
  Value estimate = state.pop_back_val();
  Value floor = b.square(b.like(estimate, b.hyper("eps1")));
  estimate = b.make<MaxOp>(estimate, floor);
  Value u = b.div(getG(), b.sqrt(estimate));
  Value w = b.decayed(getW(), b.control(getLr(), getW()));
  SmallVector<Value> results{b.sub(w, b.times(u, parts.rate(u)))};
  results.append(state);
  return results;
}

} // namespace sluice::graph
