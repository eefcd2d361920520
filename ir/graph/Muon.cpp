// Muon: the momentum of a matrix, moved to the nearest orthogonal one by a Newton-Schulz
// iteration of products.

#include "ir/graph/OptimizerParts.h"
#include "ir/graph/Shapes.h"

using namespace mlir;

namespace sluice::graph {

namespace {

// Coefficients of the quintic iteration (Jordan et al., 2024).
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;

struct MatrixShape {
  int64_t rows, columns;
  explicit MatrixShape(ArrayRef<int64_t> shape)
      : rows(shape[0]), columns(product(shape.drop_front())) {}
  bool isTall() const { return rows > columns; }
  double rateScale(bool matchesAdamW) const {
    double a = static_cast<double>(rows), b = static_cast<double>(columns);
    return matchesAdamW ? 0.2 * std::sqrt(std::max(a, b))
                        : std::sqrt(std::max(1.0, a / b));
  }
};

/// Row-major product of an [n, k] and a [k, m] matrix.
std::vector<double> times(const std::vector<double> &a, const std::vector<double> &b,
                          int64_t n, int64_t k, int64_t m) {
  std::vector<double> c(n * m, 0);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < k; ++j)
      for (int64_t l = 0; l < m; ++l)
        c[i * m + l] += a[i * k + j] * b[j * m + l];
  return c;
}

std::vector<double> transposed(const std::vector<double> &a, int64_t n, int64_t m) {
  std::vector<double> t(a.size());
  for (int64_t i = 0; i < n * m; ++i)
    t[(i % m) * n + i / m] = a[i];
  return t;
}

/// The iteration on a matrix that is not tall.
std::vector<double> orthogonalized(std::vector<double> x, MatrixShape shape, double eps,
                                   int64_t steps) {
  double square = 0;
  for (double value : x)
    square += value * value;
  for (double &value : x)
    value /= std::max(std::sqrt(square), eps);
  int64_t n = shape.rows, m = shape.columns;
  for (int64_t step = 0; step < steps; ++step) {
    std::vector<double> gram = times(x, transposed(x, n, m), n, m, n);
    std::vector<double> fourth = times(gram, gram, n, n, n);
    for (size_t i = 0; i < gram.size(); ++i)
      gram[i] = kB * gram[i] + kC * fourth[i];
    std::vector<double> moved = times(gram, x, n, n, m);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = kA * x[i] + moved[i];
  }
  return x;
}

} // namespace

LogicalResult MuonOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                       Adaptor adaptor, SmallVectorImpl<Type> &results) {
  if (tensorType(adaptor.getW()).getRank() < 2)
    return emitOptionalError(loc, "parameter of 'muon' has type ",
                             adaptor.getW().getType(), ", expected rank 2 or above");
  results.append(2, adaptor.getW().getType());
  return checkUpdate(loc, "muon", adaptor.getW(), {adaptor.getG(), adaptor.getB()});
}

LogicalResult MuonOp::evaluate(Evaluation &eval) {
  const HostTensor &w = eval.operand(0), &g = eval.operand(1);
  double lr = eval.operand(3).reals[0], momentum = hyperOf(eval, "momentum");
  double decay = hyperOf(eval, "weight_decay");
  std::vector<double> x(w.size());
  for (int64_t i = 0; i < w.size(); ++i) {
    double b = moved(eval.operand(2).reals[i], momentum, g.reals[i]);
    eval.result(1).reals[i] = eval.round(b);
    x[i] = getNesterov() ? moved(b, momentum, g.reals[i]) : b;
  }
  MatrixShape shape(w.shape), wide = shape;
  if (shape.isTall()) {
    x = transposed(x, shape.rows, shape.columns);
    std::swap(wide.rows, wide.columns);
  }
  x = orthogonalized(std::move(x), wide, real(getEpsilon()), getNsSteps());
  if (shape.isTall())
    x = transposed(x, wide.rows, wide.columns);
  double rate = lr * shape.rateScale(getMatchRmsAdamw());
  for (int64_t i = 0; i < w.size(); ++i)
    eval.result(0).reals[i] = eval.round(w.reals[i] * (1 - lr * decay) - rate * x[i]);
  return success();
}

// Tall matrices are multiplied from the right: the same polynomial, no transposes.
SmallVector<Value> MuonOp::decompose(OpBuilder &builder) {
  UpdateBuilder b(*this, builder);
  Value w = getW(), lr = b.control(getLr(), w);
  Value average = b.average(getB(), "momentum", getG()), x = average;
  if (getNesterov())
    x = b.average(average, "momentum", getG());
  MatrixShape shape(tensorType(w).getShape());
  x = b.reshape(x, {shape.rows, shape.columns});
  Value norm = b.norm(x);
  norm = b.make<MaxOp>(norm, b.splatLike(norm, real(getEpsilon())));
  x = b.div(x, b.broadcastLike(norm, x));
  auto contract = [&](Value lhs, Value rhs, int64_t left, int64_t right) {
    return b.make<ContractOp>(lhs, rhs, ArrayRef<int64_t>(), ArrayRef<int64_t>(),
                              ArrayRef<int64_t>(left), ArrayRef<int64_t>(right));
  };
  int64_t inner = shape.isTall() ? 0 : 1;
  for (int64_t step = 0, e = getNsSteps(); step < e; ++step) {
    Value gram = contract(x, x, inner, inner);
    Value factor = b.add(b.scale(gram, kB), b.scale(contract(gram, gram, 1, 0), kC));
    Value moved = shape.isTall() ? contract(x, factor, 1, 0) : contract(factor, x, 1, 0);
    x = b.add(b.scale(x, kA), moved);
  }
  x = b.reshape(x, tensorType(w).getShape());
  Value rate = b.scale(lr, shape.rateScale(getMatchRmsAdamw()));
  w = b.decayed(w, lr);
  return {b.sub(w, b.times(x, rate)), average};
}

} // namespace sluice::graph
